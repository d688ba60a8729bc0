// Dense (fully connected) layer: a matrix product.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// y = x·wᵀ; x (batch, inputs), w (units, inputs), one type → (batch, units). Throws ShapeError, DTypeError.
Tensor dense(const Context& context, const Tensor& x, const Tensor& w);

}  // namespace bantam::ops
