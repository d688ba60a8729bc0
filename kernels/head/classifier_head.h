// The end of a classifier as one op: dense, ReLU, dense, softmax cross-entropy and the metrics of a batch, with the
// gradients of the small part made on the way forward.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/parameter_target.h"
#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam::kernels {

/// h = relu(x·w1ᵀ + b1), logits = h·w2ᵀ + b2; x (batch, inputs), h (batch, hidden), logits (batch, classes).
struct ClassifierHeadShape {
  std::int64_t batch = 0, inputs = 0, hidden = 0, classes = 0;
  float smoothing = 0.0f;  ///< of the targets, as in SoftmaxCrossEntropyShape
};

/// Whether the kernels support such a head: hidden ≤ 128, classes ≤ 64, rows of x and h of whole 16 bytes, a floating
/// type.
bool classifier_head_supports(const ClassifierHeadShape& shape, DType dtype);
/// Scratch bytes of the forward; shape, type and target only.
std::size_t classifier_head_workspace_bytes(const ClassifierHeadShape& shape, DType dtype, DeviceKind target);
/// Elements of ClassifierHeadSaved::partials; shape and target only.
std::int64_t classifier_head_partials(const ClassifierHeadShape& shape, DeviceKind target);

/// Parameters, all of the op's `dtype`.
struct ClassifierHeadWeights {
  const void* w1 = nullptr;  ///< (hidden, inputs)
  const void* b1 = nullptr;  ///< (hidden)
  const void* w2 = nullptr;  ///< (classes, hidden)
  const void* b2 = nullptr;  ///< (classes)
};

/// The loss reads labels, divisor and upstream; `loss` and the ring's slot receive its results.
struct ClassifierHeadLoss {
  const std::int32_t* labels = nullptr;  ///< (batch) in [0, classes); another makes the loss NaN
  float divisor = 1.0f;                  ///< *loss = Σ losses / divisor
  const float* upstream = nullptr;       ///< device scalar, the gradient of *loss; null: no gradients are made
  float* loss = nullptr;                 ///< one float32
  MetricSums* ring = nullptr;            ///< ring[*slot] += this batch's sums, in a fixed order; null: none
  const std::int32_t* slot = nullptr;    ///< device; null: 0
};

/// Forward saves these for backward. Both are null where no gradients are made.
struct ClassifierHeadSaved {
  void* dhidden = nullptr;    ///< (batch, hidden), `dtype`: the gradient of x·w1ᵀ + b1
  float* partials = nullptr;  ///< parts of the gradients of w2, b2 and b1, to be added in order
};

struct ClassifierHeadGradients {
  void* dx = nullptr;  ///< (batch, inputs), `dtype`; null: not wanted
  ParameterTarget w1, b1, w2, b2;
};

/// Sums in float32, h and dhidden rounded to `dtype`, logits and their gradient in float32. Deterministic. Asynchronous
/// on CUDA. Throws Error where the head is not supported or the workspace is too small.
using ClassifierHeadForward = void(const Exec&, const ClassifierHeadShape&, DType dtype, const void* x,
                                   const ClassifierHeadWeights&, const ClassifierHeadLoss&, const ClassifierHeadSaved&,
                                   Workspace);
/// dx = dhidden·w1, dw1 = dhiddenᵀ·x, and the sums of the other parameters' parts.
using ClassifierHeadBackward = void(const Exec&, const ClassifierHeadShape&, DType dtype, const void* x, const void* w1,
                                    const ClassifierHeadSaved&, const ClassifierHeadGradients&, Workspace);
/// Scratch bytes of the backward.
std::size_t classifier_head_backward_workspace_bytes(const ClassifierHeadShape& shape, DType dtype, DeviceKind target);

BANTAM_DECLARE_KERNEL(ClassifierHeadForward, classifier_head_forward);
BANTAM_DECLARE_KERNEL(ClassifierHeadBackward, classifier_head_backward);

}  // namespace bantam::kernels
