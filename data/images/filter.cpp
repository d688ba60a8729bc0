#include "bantam/data/images/filter.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace bantam {
namespace {

/// Distances of pixels' centres, in pixels of full size, times 2 · size: integers.
struct Distances {
  const FilterAxis& axis;

  std::int64_t radius() const { return 2 * std::max(axis.window, axis.denominator * axis.size); }
  /// Positive within the triangle around output pixel `position`. Of a pixel that the window cuts counts what is
  /// within.
  std::int64_t weight(std::int64_t pixel, std::int64_t position) const {
    const std::int64_t start = std::max<std::int64_t>(axis.denominator * pixel - axis.offset, 0);
    const std::int64_t end = std::min(axis.denominator * (pixel + 1) - axis.offset, axis.window);
    return (radius() - std::abs((start + end) * axis.size - (2 * position + 1) * axis.window)) * (end - start);
  }
  /// The first pixel with a weight.
  std::int64_t first(std::int64_t position) const {
    const std::int64_t start = (2 * position + 1) * axis.window - radius() + 2 * axis.offset * axis.size;
    std::int64_t pixel = std::max<std::int64_t>(start / (2 * axis.denominator * axis.size) - 1, 0);
    while (weight(pixel, position) <= 0) ++pixel;
    return pixel;
  }
};

}  // namespace

void TriangleFilter::set(const FilterAxis& axis) {
  stride_ = std::min(axis.pixels, Distances{axis}.radius() / (axis.denominator * axis.size) + 2);
  first_.resize(static_cast<std::size_t>(axis.size));
  weights_.assign(first_.size() * static_cast<std::size_t>(stride_), 0);
  taps_ = 1;
  for (std::int64_t position = 0; position < axis.size; ++position)
    taps_ = std::max(
        taps_, set_one(axis, position, static_cast<std::size_t>(axis.mirrored ? axis.size - 1 - position : position)));
  keep_within(axis.pixels);
}

std::int64_t TriangleFilter::set_one(const FilterAxis& axis, std::int64_t position, std::size_t output) {
  const Distances distances{axis};
  const std::int64_t first = distances.first(position);
  std::int64_t end = first, sum = 0;
  for (; end < axis.pixels; ++end) {
    const std::int64_t weight = distances.weight(end, position);
    if (weight <= 0) break;
    sum += weight;
  }
  // The running sum is rounded, not each weight: what is left of one goes to the next.
  float* weights = weights_.data() + output * static_cast<std::size_t>(stride_);
  std::int64_t running = 0, rounded = 0;
  for (std::int64_t pixel = first; pixel < end; ++pixel) {
    running += distances.weight(pixel, position);
    const auto next =
        static_cast<std::int64_t>(std::floor(static_cast<double>(running) / static_cast<double>(sum) * kOne + 0.5));
    weights[pixel - first] = static_cast<float>(next - rounded);
    rounded = next;
  }
  first_[output] = first;
  return end - first;
}

/// Moves taps that would reach beyond the last pixel: zeros come first there.
void TriangleFilter::keep_within(std::int64_t pixels) {
  for (std::size_t output = 0; output < first_.size(); ++output) {
    const std::int64_t beyond = first_[output] + taps_ - pixels;
    if (beyond <= 0) continue;
    float* weights = weights_.data() + output * static_cast<std::size_t>(stride_);
    std::rotate(weights, weights + (taps_ - beyond), weights + taps_);
    first_[output] -= beyond;
  }
}

}  // namespace bantam
