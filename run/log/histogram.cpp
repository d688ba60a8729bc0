// Two passes: the range and the sums, then the bins.
#include "bantam/run/log/histogram.h"

#include <algorithm>
#include <cmath>

namespace bantam::run {
namespace {

/// Equal steps over the range, which is widened where it has no width.
void set_edges(Histogram& histogram) {
  double low = histogram.minimum, high = histogram.maximum;
  if (low == high) {
    const double half = std::max(0.5, std::ldexp(std::abs(low), -10));
    low -= half;
    high += half;
  }
  constexpr auto kBins = static_cast<double>(Histogram::kBins);
  for (std::size_t i = 0; i < Histogram::kBins; ++i)
    histogram.edges[i] = low + (high - low) * (static_cast<double>(i) / kBins);
  histogram.edges[Histogram::kBins] = high;
}

/// The bin by division, then corrected to the edges as they are written: rounding may be off by one.
std::size_t bin_of(const Histogram& histogram, double value, double bins_per_unit) {
  constexpr std::size_t kLast = Histogram::kBins - 1;
  const double place = (value - histogram.edges[0]) * bins_per_unit;
  std::size_t bin = place <= 0 ? 0 : std::min(static_cast<std::size_t>(place), kLast);
  if (bin < kLast && value >= histogram.edges[bin + 1]) ++bin;
  if (bin > 0 && value < histogram.edges[bin]) --bin;
  return bin;
}

}  // namespace

Histogram histogram_of(std::span<const float> values, double scale) {
  Histogram found;
  double low = INFINITY, high = -INFINITY;
  for (const float raw : values) {
    const double value = static_cast<double>(raw) * scale;
    if (!std::isfinite(value)) continue;
    ++found.finite;
    low = std::min(low, value);
    high = std::max(high, value);
    found.sum += value;
    found.sum_of_squares += value * value;
  }
  found.not_finite = static_cast<std::int64_t>(values.size()) - found.finite;
  if (found.finite > 0) {
    found.minimum = low;
    found.maximum = high;
    found.mean = found.sum / static_cast<double>(found.finite);
  }
  set_edges(found);
  const double bins_per_unit = static_cast<double>(Histogram::kBins) / (found.edges.back() - found.edges.front());
  double squares = 0;
  for (const float raw : values) {
    const double value = static_cast<double>(raw) * scale;
    if (!std::isfinite(value)) continue;
    squares += (value - found.mean) * (value - found.mean);
    ++found.counts[bin_of(found, value, bins_per_unit)];
  }
  if (found.finite > 0) found.deviation = std::sqrt(squares / static_cast<double>(found.finite));
  return found;
}

}  // namespace bantam::run
