// Separable block as one op: depthwise 3x3, pointwise, bias, ReLU and 2x2 max pooling.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::ops {

/// Weights of a block, of x's type: depthwise (3, 3, C), pointwise (C_out, …) with C elements a filter, bias (C_out) or
/// undefined.
struct SeparableBlockWeights {
  Tensor depthwise, pointwise, bias;
};

/// x (batch, H, W, C) → (batch, H', W', C_out). `shape` says what is computed; its extents are read from x and the
/// weights. Backward keeps x (or its recipe) and at most four bits an element of the result.
/// Throws ShapeError and DTypeError where kernels do not support the shape (separable_block_supported) or operands do
/// not fit together.
Tensor separable_block(const Context& context, const Tensor& x, const SeparableBlockWeights& weights,
                       kernels::SeparableBlockShape shape);

}  // namespace bantam::ops
