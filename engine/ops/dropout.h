// Dropout, in training passes.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// x (batch, …) with elements dropped at `rate` and the rest divided by 1 - rate; x itself in Pass::evaluate and at
/// rate 0. The key is the context's seed and layer path, the counter its random state, so that recompute draws the
/// same. Throws ShapeError for a rate outside [0, 1).
Tensor dropout(const Context& context, Tensor x, float rate);

}  // namespace bantam::ops
