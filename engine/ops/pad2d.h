// The shape that pad2d passes to its kernels.
#pragma once

#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/image/pad2d.h"

namespace bantam::ops {

/// `amounts` around `in` (batch, H, W, C). Throws ShapeError, prefixed by `op`, where nothing is left after cropping,
/// or less than the mode needs.
kernels::Pad2dShape pad2d_shape(const char* op, const Shape& in, const Padding& amounts, PaddingMode mode);

}  // namespace bantam::ops
