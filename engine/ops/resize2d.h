// The shape that resize2d passes to its kernels.
#pragma once

#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/image/resize2d.h"

namespace bantam::ops {

/// Resizing of `in` (batch, H, W, C). Throws ShapeError, prefixed by `op`, where extents are not from 1 to 2^24.
kernels::Resize2dShape resize2d_shape(const char* op, const Shape& in, const ResizeSettings& settings);

}  // namespace bantam::ops
