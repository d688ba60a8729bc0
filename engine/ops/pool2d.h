// Max and average pooling, NHWC.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

/// The window's padding for an input of this size. Throws ShapeError, prefixed by `op`, where the padding is not
/// smaller than the window or the window does not fit; `maximum`: also where it holds more than 65,535 positions.
Padding check_pool_window(const char* op, std::int64_t in_h, std::int64_t in_w, const Window2d& window, bool maximum);

}  // namespace bantam::ops
