// The sum that ends a residual block, over batch norms that are still to be applied: normalisation, sum and activation
// in one pass.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/batch_norm.h"
#include "bantam/kernels/exec.h"

namespace bantam::kernels {

/// One operand: x (rows, channels) as it is, or, where `mean` is not null, x normalised: (x - mean)·inv_std·scale +
/// shift, rounded to x's type as batch_norm_apply would write it. The affine's activation must be none.
struct NormOperand {
  const void* x = nullptr;
  BatchNormAffine affine;
  const float* mean = nullptr;     ///< (channels)
  const float* inv_std = nullptr;  ///< (channels)

  bool normalised() const { return mean != nullptr; }
};

/// Bytes read and written; the mask not counted.
std::int64_t batch_norm_add_bytes(const BatchNormShape& shape, DType dtype);

/// y = f(a + b), the bits of batch_norm_apply for each normalised operand and masked_activation_forward behind; `a` is
/// normalised, `b` may be. `mask` gets the bits of f' (masked_activation.h) unless it is null. f is piecewise. y may
/// alias a.x or b.x.
using BatchNormAdd = void(const Exec&, ActivationFunction f, const BatchNormShape&, DType dtype, const NormOperand& a,
                          const NormOperand& b, void* y, std::uint8_t* mask);
namespace cpu {
BatchNormAdd batch_norm_add;
}  // namespace cpu
namespace cuda {
BatchNormAdd batch_norm_add;
}  // namespace cuda

}  // namespace bantam::kernels
