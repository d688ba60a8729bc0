// Softmax cross-entropy over class logits with integer labels and label smoothing, and the metrics of a batch.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/exec.h"

namespace bantam::kernels {

/// logits (batch, classes). Target q = (1 - smoothing)·onehot + smoothing/classes.
struct SoftmaxCrossEntropyShape {
  std::int64_t batch = 0, classes = 0;
  float smoothing = 0.0f;
};

/// losses[n] = logsumexp(logits[n]) - Σ_c q_c·logits[n, c], float32 (batch); log_sum_exp (batch) is saved for the
/// gradient, and *loss = Σ losses / divisor (one float32), summed in a fixed order. logits `dtype`; labels int32 in [0,
/// classes): a label outside gives NaN.
using SoftmaxCrossEntropyForward = void(const Exec&, const SoftmaxCrossEntropyShape&, DType dtype, const void* logits,
                                        const std::int32_t* labels, float divisor, float* losses, float* log_sum_exp,
                                        float* loss);
/// dlogits = (softmax(logits) - q)·(*upstream)/divisor, `dtype`. `upstream`: device scalar, the gradient of *loss (the
/// loss scale times the caller's own). dlogits may alias logits.
using SoftmaxCrossEntropyGrad = void(const Exec&, const SoftmaxCrossEntropyShape&, DType dtype, const void* logits,
                                     const std::int32_t* labels, const float* log_sum_exp, const float* upstream,
                                     float divisor, void* dlogits);

/// Sums over batches, on the device, double so that a million steps add up.
struct MetricSums {
  double loss = 0;     ///< Σ of per-sample losses
  double correct = 0;  ///< samples whose largest logit (the first, among equals) is the label
  double samples = 0;
};
/// ring[*slot] += this batch's, in a fixed order. `slot`: device memory, read by the kernel; null: 0.
using ClassificationMetrics = void(const Exec&, const SoftmaxCrossEntropyShape&, DType dtype, const void* logits,
                                   const std::int32_t* labels, const float* losses, MetricSums* ring,
                                   const std::int32_t* slot);
namespace cpu {
SoftmaxCrossEntropyForward softmax_cross_entropy_forward;
SoftmaxCrossEntropyGrad softmax_cross_entropy_grad;
ClassificationMetrics classification_metrics;
}  // namespace cpu
namespace cuda {
SoftmaxCrossEntropyForward softmax_cross_entropy_forward;
SoftmaxCrossEntropyGrad softmax_cross_entropy_grad;
ClassificationMetrics classification_metrics;
}  // namespace cuda

}  // namespace bantam::kernels
