// What a gradient in pieces consists of: for the ops that leave one, and for those that read one as it is.
#pragma once

#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/kernels/contracts/pointwise/pointwise_norm.h"

namespace bantam {

/// A batch norm's input gradient that is still to be made of dz, the gradient of what the norm gives in front of its
/// activation: scale·inv_std·(dz - Σdz/rows - x̂·Σ(dz·x̂)/rows).
struct Gradient::NormInput {
  Tensor x;       ///< what the norm read; undefined: there is none
  Norm norm;      ///< with the batch's statistics; its shift and activation do not matter
  Tensor totals;  ///< (2, C) float32: Σ dz, Σ dz·x̂

  kernels::NormInputGradient from(const Tensor& dz) const;
};

struct Gradient::Operands {
  Tensor value;
  Tensor other;          ///< to be added; undefined: nothing
  Tensor mask;           ///< bits of f' (kernels/contracts/elementwise/masked_activation.h); undefined: 1 everywhere
  ActivationFunction f;  ///< what the mask is of
  NormInput norm;        ///< `value` is its dz, and there are no other pieces
};

}  // namespace bantam
