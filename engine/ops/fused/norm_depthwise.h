// Batch norm, 3x3 depthwise convolution, batch norm as one op, which writes no tensor between the norms except the
// convolution's result.
#pragma once

#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

/// batch_norm(depthwise_conv2d(batch_norm(x, before), w, window), after) in two passes. x (batch, H, W, C), w (3, 3,
/// C), one type; shapes and activations as kernels::norm_depthwise_supports says. Backward keeps x, the convolution's
/// result and both norms' statistics; the first norm's output is never written, nor any gradient between the norms.
/// Pass::evaluate runs the three ops. Where the node's plan defers the norm, the result has the convolution's memory
/// and a DeferredNorm note of the second one. Throws ShapeError, DTypeError.
Tensor norm_depthwise(const Context& context, const Tensor& x, const Norm& before, const Tensor& w,
                      const Window2d& window, const Norm& after);

}  // namespace bantam::ops
