// Another shape for the same elements.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// x under `shape` (as many elements; no copy). Throws ShapeError.
Tensor reshape(const Context& context, const Tensor& x, const Shape& shape);
/// (batch, …) to (batch, product of the rest).
Tensor flatten(const Context& context, const Tensor& x);

}  // namespace bantam::ops
