// Max and average pooling, NHWC.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/autograd/geometry.h"

namespace bantam::ops {

/// The window's padding for an input of this size. Throws ShapeError, prefixed by `op`, where the padding is not
/// smaller than the window or the window does not fit; `maximum`: also where it holds more than 65,535 positions.
Padding check_pool_window(const char* op, std::int64_t in_h, std::int64_t in_w, const Window2d& window, bool maximum);

/// x (batch, H, W, C) → (batch, H', W', C), the maximum over each window (padding ignored). Throws ShapeError.
Tensor max_pool2d(const Context& context, const Tensor& x, Window2d window);
/// The mean over each window; `count_padding`: padding counts as zeros.
Tensor avg_pool2d(const Context& context, const Tensor& x, Window2d window, bool count_padding = false);
/// (batch, H, W, C) → (batch, C).
Tensor global_avg_pool2d(const Context& context, const Tensor& x);
Tensor global_max_pool2d(const Context& context, const Tensor& x);

}  // namespace bantam::ops
