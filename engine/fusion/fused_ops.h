// Ops that compute several layers at once. Patterns of fusion (table.cpp) put them in the layers' place; tests call
// them beside these.
#pragma once

#include "bantam/base/activation.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/pool2d.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::ops {

/// Weights of a block, of x's type: depthwise (3, 3, C), pointwise (C_out, …) with C elements a filter, bias (C_out) or
/// undefined.
struct SeparableBlockWeights {
  Tensor depthwise, pointwise, bias;
};

/// Separable block: depthwise 3x3, pointwise, bias, ReLU and 2x2 max pooling. x (batch, H, W, C) → (batch, H', W',
/// C_out). `shape` says what is computed; its extents are read from x and the weights. Backward keeps x (or its recipe)
/// and at most four bits an element of the result. Throws ShapeError and DTypeError where kernels do not support the
/// shape (separable_block_supported) or operands do not fit together.
Tensor separable_block(const Context& context, const Tensor& x, const SeparableBlockWeights& weights,
                       kernels::SeparableBlockShape shape);

/// max_pool2d(conv2d(x, w, window), 2x2), whose inner value is never written. x (batch, H, W, C), w (C_out, kH, kW, C),
/// one type; y (batch, H'/2, W'/2, C_out). Backward keeps x (or its recipe) and the windows' winners; the convolution's
/// output gets a gradient of its own only where x wants one, but not where x is an activation of a sum of which the
/// bias alone wants one: that is then added here. On CUDA throws ShapeError where kernels::conv2d_pool_supports is
/// false; everywhere what conv2d throws.
Tensor conv2d_pool(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window);

/// relu(conv2d(x, w, window, groups) + b), of whose sums a kernel may add b and clip at 0 as it stores them, rounded
/// once (kernels::conv2d_fuses_relu). x (batch, H, W, C), w (C_out, kH, kW, C/groups), b (C_out), one type. Backward
/// keeps x (or its recipe) and the result; not the result where the node's plan says that its gradient comes multiplied
/// by relu'. Throws what conv2d and bias_activation throw.
Tensor conv2d_relu(const Context& context, const Tensor& x, const Tensor& w, const Tensor& b, const Window2d& window,
                   std::int64_t groups = 1);

/// batch_norm(depthwise_conv2d(batch_norm(x, before), w, window), after) in two passes. x (batch, H, W, C), w (3, 3,
/// C), one type; shapes and activations as kernels::norm_depthwise_supports says. Backward keeps x, the convolution's
/// result and both norms' statistics; the first norm's output is never written, nor any gradient between the norms.
/// Pass::evaluate runs the three ops. Where the node's plan defers the norm, the result has the convolution's memory
/// and a DeferredNorm note of the second one. Throws ShapeError, DTypeError.
Tensor norm_depthwise(const Context& context, const Tensor& x, const Norm& before, const Tensor& w,
                      const Window2d& window, const Norm& after);

/// The operands of expand_sum besides x and the residual. The convolution's weight is (C_out, 1, 1, C), of x's type.
struct ExpandSumOperands {
  Norm before;  ///< of x, with relu
  Tensor w;
  Norm after;  ///< of the convolution's output, without an activation
};

/// relu(batch_norm(conv2d(batch_norm(x, before), w), after) + residual), a 1x1 convolution, by algebra
/// (kernels/expand/expand.h): the convolution's output is never written. x (batch, H, W, C), residual (batch, H, W,
/// C_out), which may have a DeferredNorm. Backward keeps x, the shifted input of the convolution (or its recipe), a bit
/// an element of the result, and vectors and matrices of the weight's size. Running statistics, values and gradients
/// are those of the four ops but for rounding. Throws ShapeError where kernels::expand_supports is false.
Tensor expand_sum(const Context& context, const Tensor& x, const ExpandSumOperands& operands, Tensor residual);

/// max_pool2d(batch_norm(x, norm), window), with the same bits, but for the order of backward's sums on a GPU; the
/// norm's output is never written, nor its gradient where the device need not. x (batch, H, W, C). Backward keeps x,
/// the winners and the batch's statistics. Pass::evaluate, and GPUs where kernels::norm_pool_supports is false, run the
/// two ops. Throws ShapeError.
Tensor norm_pool(const Context& context, const Tensor& x, const Norm& norm, const PoolWindow& window);

/// squeeze_excite(batch_norm(x, norm), tensors, activation, gate), x (batch, H, W, C), in two passes over x, and two
/// over x and dy in backward; the norm's output is never written. Norms as kernels::norm_gate_supports says. Backward
/// keeps x, the batch's statistics and the gate's values. Pass::evaluate runs the two ops. Throws ShapeError,
/// DTypeError.
Tensor norm_squeeze_excite(const Context& context, const Tensor& x, const Norm& norm,
                           const SqueezeExciteTensors& tensors, ActivationFunction activation, Activation gate);

/// w1 (hidden, inputs), b1 (hidden), w2 (classes, hidden), b2 (classes), of x's type.
struct ClassifierHeadParameters {
  Tensor w1, b1, w2, b2;
};

/// The loss (float32 scalar) of logits = relu(x·w1ᵀ + b1)·w2ᵀ + b2; x (batch, inputs), labels int32 (batch). Throws
/// ShapeError where kernels::classifier_head_supports is false. Where it records, it computes gradients at once, from
/// `spec.seed`, and backward throws Error where it starts with another tensor; without a seed this throws Error.
Tensor classifier_head(const Context& context, const Tensor& x, const ClassifierHeadParameters& parameters,
                       const Tensor& labels, const LossSpec& spec);

/// The operands and the function that follow a layer's sum z in inference: y = f(z + bias + residual).
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
