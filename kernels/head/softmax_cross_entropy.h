// Softmax cross-entropy over class logits with integer labels and label smoothing, and the metrics of a batch.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/head/metric_sums.h"

namespace bantam::kernels {

/// logits (batch, classes). Target q = (1 - smoothing)·onehot + smoothing/classes.
struct SoftmaxCrossEntropyShape {
  std::int64_t batch = 0, classes = 0;
  float smoothing = 0.0f;
};

/// A row's log Σ e^l = top + log_sum, in two: e^(l - top - log_sum) keeps its digits however large the logits are,
/// while rounding the sum costs as many as it has before its point.
template <class T>
struct alignas(2 * sizeof(T)) LogSumExp {
  T top = 0;      ///< the largest logit
  T log_sum = 0;  ///< log Σ e^(l - top)
};

/// Where a forward's results go.
struct SoftmaxCrossEntropyOutputs {
  float* losses = nullptr;                  ///< (batch): logsumexp(logits[n]) - Σ_c q_c·logits[n, c]
  LogSumExp<float>* log_sum_exp = nullptr;  ///< (batch), saved for the gradient
  float* loss = nullptr;                    ///< one float32: Σ losses / divisor
  std::uint8_t* correct = nullptr;          ///< (batch): 1 where the sample counts as correct (MetricSums), else 0
  MetricSums* ring = nullptr;               ///< ring[*slot] += this batch's sums; null: none
  const std::int32_t* slot = nullptr;       ///< device memory, read by the kernel; null: 0
};

/// logits `dtype`; labels int32 in [0, classes): a label outside makes the loss NaN, and is not correct. A NaN logit is
/// never the largest. Sums in a fixed order.
using SoftmaxCrossEntropyForward = void(const Exec&, const SoftmaxCrossEntropyShape&, DType dtype, const void* logits,
                                        const std::int32_t* labels, float divisor, const SoftmaxCrossEntropyOutputs&);

/// The gradient reads these.
struct SoftmaxCrossEntropyGradInputs {
  const void* logits = nullptr;                   ///< (batch, classes), of the call's `dtype`
  const std::int32_t* labels = nullptr;           ///< (batch) in [0, classes); another makes the loss NaN
  const LogSumExp<float>* log_sum_exp = nullptr;  ///< (batch), saved by forward
  const float* upstream = nullptr;  ///< device scalar, the gradient of *loss (the loss scale times the caller's own)
  float divisor = 1.0f;             ///< forward's: *loss = Σ losses / divisor
};

/// dlogits = (softmax(logits) - q)·(*upstream)/divisor, (batch, classes), `dtype`. dlogits may alias logits.
using SoftmaxCrossEntropyGrad = void(const Exec&, const SoftmaxCrossEntropyShape&, DType dtype,
                                     const SoftmaxCrossEntropyGradInputs&, void* dlogits);

BANTAM_DECLARE_KERNEL(SoftmaxCrossEntropyForward, softmax_cross_entropy_forward);
BANTAM_DECLARE_KERNEL(SoftmaxCrossEntropyGrad, softmax_cross_entropy_grad);

}  // namespace bantam::kernels
