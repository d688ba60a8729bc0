// The triangle filter of one direction: which input pixels an output pixel is made of.
#pragma once

#include <cstdint>
#include <vector>

namespace bantam {

/// One direction of a window: pixels of the input that may be read, and how they lie to it.
struct FilterAxis {
  std::int64_t pixels = 0;       ///< of the input
  std::int64_t offset = 0;       ///< of the window's start from the first pixel's, in pixels of full size
  std::int64_t window = 0;       ///< in pixels of full size
  std::int64_t size = 0;         ///< of the output
  std::int64_t denominator = 1;  ///< pixels of full size to one of the input
  bool mirrored = false;
};

/// Weights of a triangle filter, widened by the factor of reduction. Integers of 2^16, whose sum is 2^16 for each
/// output pixel, so that a flat area keeps its value; kept as float, in which sums of 8-bit values times such weights
/// are exact whatever their order. Computed in integers: equal on all CPUs.
class TriangleFilter {
 public:
  static constexpr int kOne = 1 << 16;

  /// Reuses what is allocated.
  void set(const FilterAxis& axis);

  /// Input pixels of each output pixel, its weights after those that count being 0: of all the same number, so that
  /// loops over them have no end of their own.
  std::int64_t taps() const { return taps_; }
  /// The first of them: all are within the input.
  std::int64_t first(std::int64_t output) const { return first_[static_cast<std::size_t>(output)]; }
  const float* weights(std::int64_t output) const {
    return weights_.data() + static_cast<std::size_t>(output * stride_);
  }

 private:
  /// Returns how many pixels count.
  std::int64_t set_one(const FilterAxis& axis, std::int64_t position, std::size_t output);
  void keep_within(std::int64_t pixels);

  std::int64_t taps_ = 0, stride_ = 0;
  std::vector<std::int64_t> first_;
  std::vector<float> weights_;
};

}  // namespace bantam
