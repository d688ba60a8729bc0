// Max and average pooling, NHWC.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/contracts/pool/pool2d.h"

namespace bantam::ops {

/// The window's padding for an input of this size. Throws ShapeError, prefixed by `op`, where the padding is not
/// smaller than the window or the window does not fit; `maximum`: also where it holds more than 65,535 positions.
Padding check_pool_window(const char* op, std::int64_t in_h, std::int64_t in_w, const Window2d& window, bool maximum);

/// What `op` runs on x (batch, H, W, C). Throws as check_pool_window, DeviceError where x is elsewhere, and ShapeError
/// where it is no image.
kernels::Pool2dShape pool_shape(const Context& context, const char* op, const Tensor& x, const Window2d& window,
                                bool maximum);
/// (batch, H', W', C).
Shape pool_output(const kernels::Pool2dShape& shape);
/// Memory for the winners of max pooling to `output`: bytes, two a window, which kernels read as uint16.
Tensor allocate_winners(const Context& context, const Shape& output);

/// max_pool2d(batch_norm(x, norm), window), with the same bits; the norm's output is never written, nor its gradient
/// where the device need not. x (batch, H, W, C); windows and activations as kernels::norm_pool_supports says. Backward
/// keeps x, the winners and the batch's statistics. Pass::evaluate and GPUs run the two ops. Throws ShapeError.
Tensor norm_pool(const Context& context, const Tensor& x, const Norm& norm, const Window2d& window);

}  // namespace bantam::ops
