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

namespace bantam::ops {

/// A kernels::Conv2dShape or DepthwiseConv2dShape over an image `in` (batch, h, w, channels), with its window; the rest
/// is the caller's. Throws ShapeError, naming `op`, where the window does not fit.
template <class KernelShape>
KernelShape window_shape(const char* op, const Shape& in, const Window2d& window) {
  const Padding pad = window.resolve(op, in[1], in[2]);
  KernelShape shape;
  shape.batch = in[0], shape.in_h = in[1], shape.in_w = in[2];
  shape.kernel_h = window.kernel.h, shape.kernel_w = window.kernel.w;
  shape.stride_h = window.stride.h, shape.stride_w = window.stride.w;
  shape.pad_top = pad.top, shape.pad_bottom = pad.bottom, shape.pad_left = pad.left, shape.pad_right = pad.right;
  shape.dilation_h = window.dilation.h, shape.dilation_w = window.dilation.w;
  return shape;
}

}  // namespace bantam::ops
