// Outputs of views added up on the CPU, rows in parallel; the least certain rows by a key a row, of which the smallest
// are found by partition.
#include "bantam/kernels/metric/view_outputs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/blocks.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kRowsOfPart = 256;

/// Smaller where the largest probability is: the sum that is its inverse is at least 1, so its bits grow with it.
std::uint32_t certainty_key(const float* row, std::int64_t classes) {
  float most = row[0], sum = 0;
  for (std::int64_t c = 1; c < classes; ++c) most = std::max(most, row[c]);
  for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - most);
  return std::isnan(sum) ? 0 : ~std::bit_cast<std::uint32_t>(sum);
}

}  // namespace

void view_outputs(const Exec& exec, const ViewOutputShape& s, DType dtype, const void* y, const std::int32_t* places,
                  float* to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const all = static_cast<const T*>(y);
    parallel_ranges(s.rows, kRowsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        float* const row = to + (places != nullptr ? places[n] : n) * s.columns;
        for (std::int64_t c = 0; c < s.columns; ++c) {
          const float value = static_cast<float>(all[n * s.columns + c]);
          row[c] = (s.adds ? row[c] + value : value) / s.divisor;
        }
      }
    });
  });
}

void least_certain(const Exec& exec, const LeastCertainShape& s, const float* outputs, std::int32_t* chosen,
                   Workspace workspace) {
  auto* const keys = static_cast<std::uint32_t*>(workspace.data);
  parallel_ranges(s.rows, kRowsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) keys[n] = certainty_key(outputs + n * s.classes, s.classes);
  });
  std::vector<std::int32_t> order(static_cast<std::size_t>(s.rows));
  std::iota(order.begin(), order.end(), 0);
  const auto last = order.begin() + s.count;
  if (last != order.end())
    std::nth_element(order.begin(), last, order.end(),
                     [&](std::int32_t a, std::int32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
  std::sort(order.begin(), last);
  std::copy(order.begin(), last, chosen);
}

}  // namespace bantam::kernels::cpu
