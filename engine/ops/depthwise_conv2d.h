// What a depthwise 2-D convolution asks of its kernels.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::ops {

/// What the kernels run on `in` (batch, H, W, C). Throws ShapeError in the name of `op` where the window does not fit.
kernels::DepthwiseConv2dShape depthwise_conv2d_shape(const char* op, const Shape& in, std::int64_t multiplier,
                                                     const Window2d& window);
/// The same of a call, in the name of `op`, whose errors it throws.
kernels::DepthwiseConv2dShape depthwise_conv2d_shape(const char* op, const Tensor& x, const Tensor& w, Window2d window);

}  // namespace bantam::ops
