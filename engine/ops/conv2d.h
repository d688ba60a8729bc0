// 2-D convolution, NHWC.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/geometry.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/conv/conv2d.h"

namespace bantam::ops {

/// What the kernels run on `in` (batch, H, W, C_in). Throws ShapeError where the window does not fit.
kernels::Conv2dShape conv2d_shape(const Shape& in, std::int64_t filters, const Window2d& window, std::int64_t groups);

/// x (batch, H, W, C_in), w (C_out, kH, kW, C_in/groups), one type → (batch, H', W', C_out). `window.kernel` is taken
/// from w. Where the node's plan says so (statistics_for), the result has the statistics of the norm after it, which
/// move the running ones as the norm would. An x with a deferred norm goes to pointwise_norm. Throws ShapeError,
/// DTypeError.
Tensor conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window = {}, std::int64_t groups = 1);

}  // namespace bantam::ops
