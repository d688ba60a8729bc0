// A histogram of a tensor's values, for curves of how weights and gradients are distributed.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace bantam::run {

/// Counts the finite values in 64 bins of equal width from the least to the largest. Bin i counts edges[i] <= v <
/// edges[i + 1], the last one its upper edge, too. Values that are all the same lie in the middle of a range around
/// them. Without a finite value there is no bin: all counts are zero, and the edges are those of 0.
struct Histogram {
  static constexpr std::size_t kBins = 64;
  double minimum = 0, maximum = 0, mean = 0;
  double deviation = 0;         ///< standard deviation, divided by the number of values
  std::int64_t finite = 0;      ///< values that are counted
  std::int64_t not_finite = 0;  ///< values that are not
  double sum = 0, sum_of_squares = 0;
  std::array<double, kBins + 1> edges{};  ///< ascending
  std::array<std::int64_t, kBins> counts{};
};

/// Counts `values`, each times `scale`. Sums are float64, in the values' order: the same values have one histogram.
Histogram histogram_of(std::span<const float> values, double scale = 1.0);

}  // namespace bantam::run
