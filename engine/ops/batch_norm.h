// Batch normalisation over the last axis.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// x (…, C) to y of its shape and type. Pass::train and Pass::recompute normalise with the batch's statistics (computed
/// here, or by the op that wrote x: BatchStatistics), Pass::evaluate with the running ones, which has no gradient:
/// recording it throws Error. Backward keeps x and the batch's mean and deviation, never y. Where the node's plan
/// defers the norm, and it has no activation, y has x's memory and a DeferredNorm note. Throws ShapeError, DTypeError.
/// Source: Ioffe and Szegedy, 2015.
Tensor batch_norm(const Context& context, const Tensor& x, const Norm& norm);

}  // namespace bantam::ops
