// Max and average pooling, NHWC.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::ops {

/// A pooling's window; `ceil_mode`: the last windows may end outside the padded image, if they begin inside the image
/// or the padding before it.
struct PoolWindow {
  Window2d window;
  bool ceil_mode = false;
};

/// The shape with which `op` pools images `x` (batch, H, W, C). Throws ShapeError, prefixed by `op`, where padding
/// is not smaller than the window, the window does not fit, or one would be padding alone; `maximum`: also where it has
/// more than 65,535 positions.
kernels::Pool2dShape pool_shape(const char* op, const Shape& x, const PoolWindow& pool, bool maximum);
/// The same for a tensor; also throws DeviceError where x is elsewhere, and ShapeError where it is no image.
kernels::Pool2dShape pool_shape(const Context& context, const char* op, const Tensor& x, const PoolWindow& pool,
                                bool maximum);
/// (batch, H', W', C).
Shape pool_output(const kernels::Pool2dShape& shape);
/// Memory for the winners of max pooling to `output`: bytes, two a window, which kernels read as uint16.
Tensor allocate_winners(const Context& context, const Shape& output);

}  // namespace bantam::ops
