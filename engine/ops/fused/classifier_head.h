// The end of a classifier as one op: dense, ReLU, dense, softmax cross-entropy and metrics.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

/// w1 (hidden, inputs), b1 (hidden), w2 (classes, hidden), b2 (classes), of x's type.
struct ClassifierHeadParameters {
  Tensor w1, b1, w2, b2;
};

/// The loss (float32 scalar) of logits = relu(x·w1ᵀ + b1)·w2ᵀ + b2; x (batch, inputs), labels int32 (batch). Throws
/// ShapeError where kernels::classifier_head_supports is false. Where it records, it computes gradients at once, from
/// `spec.seed`, and backward throws Error where it starts with another tensor; without a seed this throws Error.
Tensor classifier_head(const Context& context, const Tensor& x, const ClassifierHeadParameters& parameters,
                       const Tensor& labels, const LossSpec& spec);

}  // namespace bantam::ops
