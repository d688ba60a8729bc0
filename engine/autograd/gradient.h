// Gradient: a value's gradient on its way backwards, as a tensor or in pieces that the op it reaches applies as it
// reads them.
#pragma once

#include <memory>

#include "bantam/base/activation.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam {

/// f'·(value + other): what a residual sum with an activation hands to the ops in front of it. A handle: copies share
/// the pieces, and whoever makes the tensor first makes it for all. Not thread-safe; one step on one stream.
class Gradient {
 public:
  struct NormInput;  ///< internal: gradient_pieces.h
  struct Pieces;     ///< internal: gradient_pieces.h

  Gradient() = default;
  Gradient(Tensor value);  // NOLINT: a tensor is a gradient
  /// value + other, of one shape and type.
  Gradient(Tensor value, Tensor other);
  /// That of x, from dz.
  Gradient(Tensor dz, NormInput norm);

  bool defined() const { return pieces_ != nullptr; }
  bool in_pieces() const;
  bool of_norm() const;
  /// Whether others hold these pieces too.
  bool shared() const { return pieces_.use_count() > 1; }
  /// To be read, or set to the tensor that was made of them (then without the others).
  Pieces& pieces() { return *pieces_; }
  const Tensor& value() const;

  /// This gradient behind the activation f, whose mask is `mask`. Takes this one's place.
  Gradient masked(const Context& context, Tensor mask, ActivationFunction f) &&;
  /// The tensor, in the memory of a piece where nobody else holds that. Takes the last one's memory along: the result
  /// is its only owner. Throws OutOfMemory.
  Tensor tensor(const Context& context) &&;

 private:
  std::shared_ptr<Pieces> pieces_;
};

}  // namespace bantam
