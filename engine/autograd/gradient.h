// Gradient: a value's gradient on its way backwards, as a tensor or in pieces that the op it reaches applies as it
// reads them.
#pragma once

#include <memory>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/pointwise/pointwise_norm.h"

namespace bantam {

/// f'·(value + other): what a residual sum with an activation hands to the ops in front of it. A handle: copies share
/// the pieces, and whoever makes the tensor first makes it for all. Not thread-safe; one step on one stream.
class Gradient {
 public:
  /// A batch norm's input gradient that is still to be made of dz, the gradient of what the norm gives in front of its
  /// activation: scale·inv_std·(dz - Σdz/rows - x̂·Σ(dz·x̂)/rows).
  struct NormInput {
    Tensor x;       ///< what the norm read; undefined: there is none
    Norm norm;      ///< with the batch's statistics; its shift and activation do not matter
    Tensor totals;  ///< (2, C) float32: Σ dz, Σ dz·x̂

    kernels::NormInputGradient from(const Tensor& dz) const;
  };
  struct Pieces {
    Tensor value;
    Tensor other;  ///< to be added; undefined: nothing
    Tensor mask;   ///< bits of f' (kernels/contracts/elementwise/masked_activation.h); undefined: 1 everywhere
    kernels::ActivationFunction f;  ///< what the mask is of
    NormInput norm;                 ///< `value` is its dz, and there are no other pieces
  };

  Gradient() = default;
  Gradient(Tensor value);  // NOLINT: a tensor is a gradient
  /// value + other, of one shape and type.
  Gradient(Tensor value, Tensor other);
  /// That of x, from dz.
  Gradient(Tensor dz, NormInput norm);

  bool defined() const { return pieces_ != nullptr; }
  bool in_pieces() const { return pieces_->other.defined() || pieces_->mask.defined() || of_norm(); }
  bool of_norm() const { return pieces_->norm.x.defined(); }
  /// Whether others hold these pieces too.
  bool shared() const { return pieces_.use_count() > 1; }
  /// To be read, or set to the tensor that was made of them (then without the others).
  Pieces& pieces() { return *pieces_; }
  const Tensor& value() const { return pieces_->value; }

  /// This gradient behind the activation f, whose mask is `mask`. Takes this one's place.
  Gradient masked(const Context& context, Tensor mask, kernels::ActivationFunction f) &&;
  /// The tensor, in the memory of a piece where nobody else holds that. Takes the last one's memory along: the result
  /// is its only owner. Throws OutOfMemory.
  Tensor tensor(const Context& context) &&;

 private:
  std::shared_ptr<Pieces> pieces_;
};

}  // namespace bantam
