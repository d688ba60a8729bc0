// Searches from the largest size that the bytes alone allow down to the first that fits.
#include "bantam/engine/plan/batch_search.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::int64_t kExact = 256;  // up to so many units each is asked about, then every 2nd, 4th …

/// The sizes that are asked about, in units: 1 to 256, 258, 260 … 512, 516 …
std::int64_t nth_size(std::int64_t n) {
  if (n < kExact) return n;
  const std::int64_t half = kExact / 2, octave = (n - kExact) / half, within = (n - kExact) % half;
  return (kExact + 2 * within) << octave;
}

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
  const std::int64_t most = range.max / unit;
  // The range's end is one of the sizes, whatever it is.
  if (most > 0 && questions.could_fit(most * unit) && fits(most)) return most * unit;
  const std::int64_t sizes = last_true(most, [&](std::int64_t n) { return nth_size(n) <= most; });
  const std::int64_t top = last_true(sizes, [&](std::int64_t n) { return questions.could_fit(nth_size(n) * unit); });
  const auto nth_fits = [&](std::int64_t n) { return fits(nth_size(n)); };
  if (top == 0 || nth_fits(top)) return nth_size(top) * unit;
  // Bisection finds a size below which much fits; a larger one may fit all the same.
  const std::int64_t sure = last_true(top - 1, nth_fits);
  for (std::int64_t n = top - 1; n > sure; --n)
    if (nth_fits(n)) return nth_size(n) * unit;
  return nth_size(sure) * unit;
}

}  // namespace bantam
