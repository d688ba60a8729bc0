// What is asked of a loss, and layers that make it themselves.
#pragma once

#include "bantam/engine/layers/layer.h"
#include "bantam/engine/ops/softmax_cross_entropy.h"

namespace bantam {

/// The end of a graph, bound to its parameters, that goes on to the loss in one op. As a layer it gives the logits.
class LossHead : public BoundLayer {
 public:
  /// x (batch, features), labels int32 (batch) → the loss, a float32 scalar. Records where the context has a tape; then
  /// `spec.seed` must be defined.
  virtual Tensor forward_loss(const Context& context, const Tensor& x, const Tensor& labels, const LossSpec& spec) = 0;
};

}  // namespace bantam
