// The operands of a deferred gradient, for the ops that store one and for those that compute with its operands.
#pragma once

#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam {

/// A batch norm's input gradient that is not computed yet: from dz, the gradient of the norm's output before its
/// activation, as scale·inv_std·(dz - Σdz/rows - x̂·Σ(dz·x̂)/rows).
struct Gradient::NormInput {
  Tensor x;       ///< what the norm read; undefined: there is none
  Norm norm;      ///< with the batch's statistics; its shift and activation do not matter
  Tensor totals;  ///< (2, C) float32: Σ dz, Σ dz·x̂

  kernels::NormInputGradient from(const Tensor& dz) const;
};

struct Gradient::Operands {
  Tensor value;
  Tensor other;          ///< to be added; undefined: nothing
  Tensor mask;           ///< bits of f' (kernels/elementwise/masked_activation.h); undefined: 1 everywhere
  ActivationFunction f;  ///< what the mask is of
  NormInput norm;        ///< `value` is its dz, and there are no other operands
  /// (C) float32: `value` has been multiplied by relu' of the sum whose gradient this is, and these are its sums over
  /// all axes but the last; undefined: it has not. Only that sum's own backward reads such a gradient.
  Tensor sums;
  Tensor observed;  ///< where `sums` is defined, and somebody observes gradients: the gradient without relu'
};

}  // namespace bantam
