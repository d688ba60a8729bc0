// Floats of the host into a tensor of any floating type, as weights are initialised, whitened and loaded.
#pragma once

#include <span>

#include "bantam/engine/autograd/tensor.h"

namespace bantam {

/// Copies `values`, as many as the tensor has elements, to a float32, float16 or bfloat16 tensor, rounded to nearest
/// even. In the stream's order; `values` may go when this returns. Throws ShapeError and DTypeError.
void copy_floats(const Tensor& to, std::span<const float> values, Stream stream);

}  // namespace bantam
