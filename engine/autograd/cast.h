// Change of element type.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// x as `dtype` (float32, float16, bfloat16); x itself where it has it already. The gradient is cast back.
Tensor cast(const Context& context, const Tensor& x, DType dtype);

}  // namespace bantam::ops
