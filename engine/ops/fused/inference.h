// Layers of inference as one op: convolutions, depthwise ones and dense layers, with bias, sum and activation.
#pragma once

#include "bantam/base/activation.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

/// What follows a layer's sum: y = f(z + bias + residual).
struct InferenceEpilogue {
  Tensor bias;      ///< (channels), or undefined
  Tensor residual;  ///< like the output, or undefined
  ActivationFunction f;
};

/// Brings the weight of a conv2d layer whose samples are `in` (H, W, C) into the order that `conv2d_inference` reads.
void pack_conv2d_weight(const Context& context, const Shape& in, const Tensor& w, Window2d window, std::int64_t groups);
/// conv2d and its epilogue, with a packed weight. Records nothing: throws Error where an operand wants a gradient.
Tensor conv2d_inference(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window,
                        std::int64_t groups, const InferenceEpilogue& epilogue);
/// depthwise_conv2d and its epilogue. Records nothing: throws Error where an operand wants a gradient.
Tensor depthwise_conv2d_inference(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window,
                                  const InferenceEpilogue& epilogue);

}  // namespace bantam::ops
