// Sum of two tensors of one shape, and an activation of it.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"
#include "bantam/kernels/activation.h"

namespace bantam::ops {

/// y = f(a + b), in one pass where f is piecewise linear (backward then keeps one bit an element). Throws ShapeError,
/// DTypeError where they differ. Works in place where an operand is the last holder of its memory.
Tensor add(const Context& context, Tensor a, Tensor b, kernels::ActivationFunction activation = {});

}  // namespace bantam::ops
