// What is asked of a loss, and layers that make it themselves.
#pragma once

#include "bantam/engine/layer.h"
#include "bantam/engine/ops/softmax_cross_entropy.h"

namespace bantam {

/// The loss of a batch.
struct LossSpec {
  ops::SoftmaxCrossEntropyOptions options;
  /// float32 scalar on the device: the gradient of the loss with which backward will start, whose value must be there
  /// already. Fused ends of models make gradients with it on the way forward, and backward from another tensor throws.
  /// Undefined: not known yet.
  Tensor seed;
};

/// The end of a graph, bound to its parameters, that goes on to the loss in one op. As a layer it gives the logits.
class LossHead : public BoundLayer {
 public:
  /// x (batch, features), labels int32 (batch) → the loss, a float32 scalar. Records where the context has a tape; then
  /// `spec.seed` must be defined.
  virtual Tensor forward_loss(const Context& context, const Tensor& x, const Tensor& labels, const LossSpec& spec) = 0;
};

}  // namespace bantam
