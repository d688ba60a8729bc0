// Searches from the largest size that the bytes alone allow down to the first that fits.
#include "bantam/engine/plan/batch_search.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::int64_t kStepsToTheTop = 200;  // a step down is half a per cent of the size

/// The largest n in [0, most] for which `holds`, which is true at 0 and goes from true to false once.
template <class Holds>
std::int64_t last_true(std::int64_t most, Holds&& holds) {
  std::int64_t low = 0, high = 1;
  while (high <= most && holds(high)) low = high, high *= 2;
  high = std::min(high, most + 1);  // the least known or assumed to be false
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::int64_t largest_batch(const BatchRange& range, const BatchQuestions& questions) {
  if (range.multiple_of < 1)
    throw ConfigError(fmt::format("a batch size cannot be a multiple of {}", range.multiple_of));
  const std::int64_t unit = range.multiple_of;
  const auto fits = [&](std::int64_t units) { return questions.fits(units * unit); };
  const std::int64_t top =
      last_true(range.max / unit, [&](std::int64_t units) { return questions.could_fit(units * unit); });
  if (top == 0 || fits(top)) return top * unit;
  // Bisection finds a size below which much fits; a larger one may fit all the same.
  const std::int64_t sure = last_true(top - 1, fits), step = std::max<std::int64_t>(1, top / kStepsToTheTop);
  for (std::int64_t units = top - step; units > sure; units -= step) {
    if (!fits(units)) continue;
    return (units + last_true(step - 1, [&](std::int64_t more) { return fits(units + more); })) * unit;
  }
  return sure * unit;
}

}  // namespace bantam
