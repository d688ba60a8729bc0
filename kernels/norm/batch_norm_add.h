// The sum that ends a residual block, with deferred batch norms: normalisation, sum and activation in one pass; and the
// backward of such a norm.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels {

/// y = f(a + b), the bits of batch_norm_apply for each normalised operand (rounded to x's type as it would write it)
/// and masked_activation_forward after it; `a` is normalised, `b` may be; the operands' activation must be none. `mask`
/// gets the bits of f' (masked_activation.h) unless it is null. f is piecewise. y may alias a.x or b.x.
using BatchNormAdd = void(const Exec&, ActivationFunction f, const BatchNormShape&, DType dtype, const NormOperand& a,
                          const NormOperand& b, void* y, std::uint8_t* mask);

/// The gradient of f(a + b) before it is multiplied by f', as operands: dz = f'(a + b)·(dy + other), rounded after the
/// sum and after the product, as `add` and `masked_activation_grad` would write it.
struct SumGradient {
  const void* dy = nullptr;
  const void* other = nullptr;         ///< null: 0
  const std::uint8_t* mask = nullptr;  ///< bits of f' (masked_activation.h); null: 1 everywhere
  ActivationFunction f;
};

/// Backward of one norm of the sum: writes dz (rows, channels), and dx, dscale and dshift from it: the bits that `add`,
/// `masked_activation_grad` and `batch_norm_backward_training` compute one after another, in one pass less over each
/// tensor. dz may alias dy or other, dx the one that dz does not alias. Workspace: batch_norm_workspace_bytes.
/// Deterministic.
using BatchNormAddGrad = void(const Exec&, const BatchNormShape&, DType dtype, const SumGradient& gradient,
                              const NormOperand& norm, void* dz, const NormGradients&, Workspace);
BANTAM_DECLARE_KERNEL(BatchNormAdd, batch_norm_add);
BANTAM_DECLARE_KERNEL(BatchNormAddGrad, batch_norm_add_grad);

}  // namespace bantam::kernels
