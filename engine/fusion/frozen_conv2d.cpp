// A convolution of a training step that backward computes no gradient of, as one op with its bias and activation.
#include <string>
#include <utility>

#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/kernels/conv/conv2d_inference.h"

namespace bantam::fusion {
namespace {

/// Matches where the kernel that computes the convolution applies bias and activation as it stores.
NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  if (target.without_gradient == nullptr || !(*target.without_gradient)[static_cast<std::size_t>(first)]) return 0;
  const auto* conv = options_at<Conv2dOptions>(graph, first);
  if (conv == nullptr || conv->padding_mode != ops::PaddingMode::zeros) return 0;
  if (!conv->bias && conv->activation.kind == Activation::none) return 0;
  const kernels::Conv2dShape shape = conv2d_shape_at(graph, first, *conv);
  return kernels::conv2d_applies_epilogue(shape, target.compute, target.device) ? first : 0;
}

/// Runs the op of inference; where the model's input wants a gradient all the same, the ops that record one.
class BoundFrozenConv2d : public BoundLayer {
 public:
  BoundFrozenConv2d(const Conv2dOptions& options, Parameter& weight, Parameter* bias)
      : window_(window_of(options)),
        groups_(options.groups),
        f_{options.activation.kind, options.activation.slope},
        weight_(weight),
        bias_(bias) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]), w = weight_.value(), b = bias_ != nullptr ? bias_->value() : Tensor();
    if (!records(context, {&x, &w, &b}))
      return ops::conv2d_inference(context, x, w, window_, groups_, {.bias = b, .f = f_});
    Tensor y = ops::conv2d(context.inner(), x, w, window_, groups_);
    if (bias_ != nullptr) return ops::bias_activation(context, std::move(y), b, f_);
    return ops::activation(context, std::move(y), f_.kind, f_.slope);
  }

 private:
  Window2d window_;
  std::int64_t groups_;
  ActivationFunction f_;
  Parameter& weight_;
  Parameter* bias_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const std::string& name = graph.node(fusion.first).name;
  const auto& options = *options_at<Conv2dOptions>(graph, fusion.first);
  return std::make_unique<BoundFrozenConv2d>(options, *parameters.find(name + "/weight"),
                                             options.bias ? parameters.find(name + "/bias") : nullptr);
}

}  // namespace

/// conv2d with bias or activation, frozen.
extern const FusionPattern kFrozenConv2d{
    .name = "frozen_conv2d", .match = match, .bind = bind, .use = FusionPattern::Use::training};

}  // namespace bantam::fusion
