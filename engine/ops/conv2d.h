// What a 2-D convolution asks of its kernels.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/contracts/conv/conv2d.h"

namespace bantam::ops {

/// What the kernels run on `in` (batch, H, W, C_in). Throws ShapeError where the window does not fit.
kernels::Conv2dShape conv2d_shape(const Shape& in, std::int64_t filters, const Window2d& window, std::int64_t groups);

}  // namespace bantam::ops
