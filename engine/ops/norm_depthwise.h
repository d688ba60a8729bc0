// Batch norm, 3x3 depthwise convolution, batch norm as one op: what lies between the norms is never written.
#pragma once

#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/autograd/geometry.h"

namespace bantam::ops {

/// What batch_norm(depthwise_conv2d(batch_norm(x, before), w, window), behind) gives. x (batch, H, W, C), w (3, 3, C),
/// one type; shapes and activations as kernels::norm_depthwise_takes says. Backward keeps x, the convolution's result
/// and both norms' statistics; the first norm's output is never made, nor any gradient between the norms.
/// Pass::evaluate runs the three ops. Where the context says `defer`, the result has the convolution's memory, and the
/// second norm pending on it. Throws ShapeError, DTypeError.
Tensor norm_depthwise(const Context& context, const Tensor& x, const NormStage& before, const Tensor& w,
                      const Window2d& window, const NormStage& behind);

}  // namespace bantam::ops
