// The piecewise linear activations of one tensor or of a sum, for `activation` and `add`.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"
#include "bantam/kernels/activation.h"

namespace bantam::ops {

/// y = f(a + b), or f(a) where b is undefined; f is piecewise (kernels::is_piecewise). Operands were checked.
Tensor masked_activation(const Context& context, Tensor a, Tensor b, kernels::ActivationFunction f);

}  // namespace bantam::ops
