// Sum of two tensors of one shape, and an activation of it.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/elementwise/activation.h"

namespace bantam::ops {

/// y = f(a + b), in one pass where f is piecewise linear (backward then keeps one bit an element). Throws ShapeError,
/// DTypeError where they differ. Works in place where an operand is the last holder of its memory.
Tensor add(const Context& context, Tensor a, Tensor b, kernels::ActivationFunction activation = {});

}  // namespace bantam::ops
