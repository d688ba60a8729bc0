// A pointwise convolution of a tensor with a deferred norm.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// conv2d(x, w) for an x with a DeferredNorm (tensor_notes.h) and w (C_out, 1, 1, C_in): the GEMMs apply the norm as
/// they read x's memory, in forward and for the weight gradient, so that its output is never written. Backward keeps
/// x's memory, which the norm's own backward keeps anyway. Statistics as conv2d computes them. Throws ShapeError.
Tensor pointwise_norm(const Context& context, const Tensor& x, const Tensor& w);

}  // namespace bantam::ops
