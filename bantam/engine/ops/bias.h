// Adding a vector to every row of the last axis.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"

namespace bantam::ops {

/// y[…, c] = x[…, c] + b[c]; x (…, channels), b (channels), one type. Works in place where x is the last holder of its
/// memory.
Tensor bias_add(const Context& context, Tensor x, const Tensor& b);

}  // namespace bantam::ops
