// Extents, strides and padding of image ops, and how Keras' "same" resolves to explicit amounts.
#pragma once

#include <cstdint>

#include "bantam/base/shape.h"

namespace bantam {

/// Height and width.
struct Extent2d {
  std::int64_t h = 1, w = 1;
  bool operator==(const Extent2d&) const = default;
};

/// valid: none. same: Keras' (output = ⌈input/stride⌉, the odd row or column goes to the bottom and right). explicit_:
/// as given.
enum class PaddingKind : std::uint8_t { valid, same, explicit_ };
struct Padding {
  PaddingKind kind = PaddingKind::valid;
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  static Padding valid() { return {}; }
  static Padding same() { return {PaddingKind::same}; }
  static Padding symmetric(std::int64_t amount) { return {PaddingKind::explicit_, amount, amount, amount, amount}; }
  bool operator==(const Padding&) const = default;
};

/// A sliding window over an image.
struct Window2d {
  Extent2d kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  Padding padding;
  /// The padding as explicit amounts, for an input of this height and width. Throws ShapeError, prefixed by `op`, where
  /// extents are not positive, padding is negative, or the window does not fit the padded input.
  Padding resolve(const char* op, std::int64_t in_h, std::int64_t in_w) const;
};

/// Throws ShapeError, prefixed by `op`, unless `x` is (batch, height, width, channels).
void check_image(const char* op, const Shape& x);

}  // namespace bantam
