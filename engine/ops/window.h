// Windows of image ops as kernels read them.
#pragma once

#include "bantam/engine/ops/ops.h"

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
