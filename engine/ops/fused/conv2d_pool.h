// A convolution and the 2x2 max pooling of its output as one op, which never writes that output.
#pragma once

#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

/// max_pool2d(conv2d(x, w, window), 2x2). x (batch, H, W, C), w (C_out, kH, kW, C), one type; y (batch, H'/2, W'/2,
/// C_out). Backward keeps x (or its recipe) and the windows' winners; the convolution's output gets a gradient of its
/// own only where x wants one, but not where x is an activation of a sum of which the bias alone wants one: that is
/// then added here. On CUDA throws ShapeError where kernels::conv2d_pool_supports is false; everywhere what
/// conv2d throws.
Tensor conv2d_pool(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window);

}  // namespace bantam::ops
