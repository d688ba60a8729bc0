// The shape that a depthwise 2-D convolution passes to its kernels.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::ops {

/// The kernels' shape on `in` (batch, H, W, C). Throws ShapeError, prefixed by `op`, where the window does not fit.
kernels::DepthwiseConv2dShape depthwise_conv2d_shape(const char* op, const Shape& in, std::int64_t multiplier,
                                                     const Window2d& window);
/// The shape for the kernels on x with a weight; checks both, and throws errors in the name of `op`.
kernels::DepthwiseConv2dShape depthwise_conv2d_shape(const char* op, const Tensor& x, const Tensor& w, Window2d window);

}  // namespace bantam::ops
