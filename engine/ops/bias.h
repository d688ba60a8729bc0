// Adding a vector to every row of the last axis.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// y[…, c] = x[…, c] + b[c]; x (…, channels), b (channels), one type. Works in place where x is the last holder of its
/// memory.
Tensor bias_add(const Context& context, Tensor x, const Tensor& b);

}  // namespace bantam::ops
