// Element-wise activations.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/elementwise/activation.h"

namespace bantam::ops {

/// y = f(x), any shape; f' at corners as kernels::Activation says. Backward keeps one bit an element where f is
/// piecewise linear, else x or y, whichever its formula reads. Works in place where x is the last holder of its memory
/// and backward does not read x.
Tensor activation(const Context& context, Tensor x, kernels::Activation kind, float slope = 0.01f);

}  // namespace bantam::ops
