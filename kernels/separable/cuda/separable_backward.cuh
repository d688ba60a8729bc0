// The steps of a separable block's backward pass, as functions of the host: partial gradients by one of two kernels,
// then their sum.
#pragma once

#include "bantam/kernels/separable/separable_backward_tiles.h"

namespace bantam::kernels::cuda {

/// Operands of a backward pass; `partials` (gradient parts, separable_gradient_elements).
struct SeparableOperands {
  const void *x, *w_depthwise, *w_pointwise, *dy;
  const std::uint8_t* codes;
  void* dx;
  float* partials;
};

/// dx and partial gradients of a block of 8 and more input channels. Returns the number of parts.
std::int64_t separable_tile_backward(const Exec&, const SeparableBlockShape&, DType, const SeparableOperands&);
/// Partial gradients of a block of up to 4 input channels. Returns the number of parts.
std::int64_t separable_moments(const Exec&, const SeparableBlockShape&, DType, const SeparableOperands&);
/// dx of a block of up to 4 input channels: right, not fast (a first block's dx is seldom wanted).
void separable_few_channels_grad_input(const Exec&, const SeparableBlockShape&, DType, const SeparableOperands&);

}  // namespace bantam::kernels::cuda
