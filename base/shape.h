// The extents of a tensor, outermost first; images are (batch, height, width, channels).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// Up to eight extents, by value. Rank 0 is a scalar of one element.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  /// Extent of `axis`; negative axes count from the end. Throws ShapeError outside the rank.
  std::int64_t operator[](int axis) const;
  /// Product of all extents (1 for a scalar). Extents are checked at construction: the product never overflows.
  std::int64_t elements() const;
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }
  /// This shape with one axis replaced.
  Shape with(int axis, std::int64_t extent) const;
  /// This shape with `extent` as a new first axis: (2,3) → (extent,2,3).
  Shape prepend(std::int64_t extent) const;
  /// This shape without its first axis. Throws ShapeError for a scalar.
  Shape without_first() const;

  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// "(16, 32, 32, 3)".
std::string to_string(const Shape& shape);

}  // namespace bantam
BANTAM_API_END
