// Softmax cross-entropy with integer labels.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/head/metric_sums.h"

namespace bantam::ops {

struct SoftmaxCrossEntropyOptions {
  float label_smoothing = 0.0f;
  /// The loss is Σ per-sample losses / divisor; 0: the batch's size (mean).
  float divisor = 0.0f;
  /// Device memory: metrics[*metric_slot] gets this batch's sums added; a null slot means 0, null metrics none.
  kernels::MetricSums* metrics = nullptr;
  const std::int32_t* metric_slot = nullptr;
};
struct SoftmaxCrossEntropyResult {
  Tensor loss;    ///< float32 scalar
  Tensor losses;  ///< float32 (batch)
};

/// logits (batch, classes), labels int32 (batch). Throws ShapeError, DTypeError.
SoftmaxCrossEntropyResult softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& labels,
                                                SoftmaxCrossEntropyOptions options = {});

}  // namespace bantam::ops

namespace bantam {

/// The loss of a batch.
struct LossSpec {
  ops::SoftmaxCrossEntropyOptions options;
  /// float32 scalar on the device: the gradient of the loss with which backward will start, whose value must be there
  /// already. Fused ends of models make gradients with it on the way forward, and backward from another tensor throws.
  /// Undefined: not known yet.
  Tensor seed;
};

}  // namespace bantam
