// Softmax cross-entropy with integer labels.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"

namespace bantam::ops {

struct SoftmaxCrossEntropyOptions {
  float label_smoothing = 0.0f;
  /// The loss is Σ per-sample losses / divisor; 0: the batch's size (mean).
  float divisor = 0.0f;
};
struct SoftmaxCrossEntropyResult {
  Tensor loss;    ///< float32 scalar
  Tensor losses;  ///< float32 (batch), for metrics
};

/// logits (batch, classes), labels int32 (batch). Throws ShapeError, DTypeError.
SoftmaxCrossEntropyResult softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& labels,
                                                SoftmaxCrossEntropyOptions options = {});

}  // namespace bantam::ops
