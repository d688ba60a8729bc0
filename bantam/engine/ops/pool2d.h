// Max and average pooling, NHWC.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/ops/geometry.h"
#include "bantam/engine/tensor.h"

namespace bantam::ops {

/// x (batch, H, W, C) → (batch, H', W', C), the maximum over each window (padding ignored). Throws ShapeError.
Tensor max_pool2d(const Context& context, const Tensor& x, Window2d window);
/// The mean over each window; `count_padding`: padding counts as zeros.
Tensor avg_pool2d(const Context& context, const Tensor& x, Window2d window, bool count_padding = false);
/// (batch, H, W, C) → (batch, C).
Tensor global_avg_pool2d(const Context& context, const Tensor& x);
Tensor global_max_pool2d(const Context& context, const Tensor& x);

}  // namespace bantam::ops
