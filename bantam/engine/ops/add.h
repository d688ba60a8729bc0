// Sum of two tensors of one shape.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"

namespace bantam::ops {

/// y = a + b. Throws ShapeError, DTypeError where they differ. Works in place where an operand is the last holder of
/// its memory.
Tensor add(const Context& context, Tensor a, Tensor b);

}  // namespace bantam::ops
