// Softmax cross-entropy with integer labels.
#pragma once

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"
#include "bantam/kernels/softmax_cross_entropy.h"

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
