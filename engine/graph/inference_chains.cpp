// Which layers run as one op in inference: a convolution or a dense layer with its bias and activation, and the sum
// after it; and which frozen ones do in training.
#include <optional>
#include <string>
#include <utility>

#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/fused/inference.h"
#include "bantam/engine/ops/image/pad2d.h"
#include "bantam/kernels/conv/conv2d_inference.h"

namespace bantam::fusion {
namespace {

/// A layer that has an op of inference.
struct InferenceLayer {
  Window2d window;
  std::int64_t groups = 1;
  bool bias = false;
  ActivationOptions activation;
  enum class Kind : std::uint8_t { conv2d, depthwise, dense } kind = Kind::conv2d;
  ops::PaddingMode padding_mode = ops::PaddingMode::zeros;
};

std::optional<InferenceLayer> layer_at(const Graph& graph, NodeId node) {
  const Layer& layer = *graph.node(node).layer;
  using Kind = InferenceLayer::Kind;
  if (const auto* conv = layer.options<Conv2dOptions>())
    return InferenceLayer{{conv->kernel, conv->stride, conv->dilation, conv->padding},
                          conv->groups,
                          conv->bias,
                          conv->activation,
                          Kind::conv2d,
                          conv->padding_mode};
  if (const auto* depthwise = layer.options<DepthwiseConv2dOptions>())
    return InferenceLayer{{depthwise->kernel, depthwise->stride, depthwise->dilation, depthwise->padding},
                          1,
                          depthwise->bias,
                          depthwise->activation,
                          Kind::depthwise};
  if (const auto* product = layer.options<DenseOptions>())
    return InferenceLayer{.bias = product->bias, .activation = product->activation, .kind = Kind::dense};
  return std::nullopt;
}

NodeId match_layer(const Graph& graph, NodeId first, const FusionTarget&) { return layer_at(graph, first) ? first : 0; }

/// A conv2d layer of a training step that backward computes no gradient of, where the kernel that computes it applies
/// bias and activation as it stores.
NodeId match_frozen(const Graph& graph, NodeId first, const FusionTarget& target) {
  if (target.without_gradient == nullptr || !(*target.without_gradient)[static_cast<std::size_t>(first)]) return 0;
  const std::optional<InferenceLayer> layer = layer_at(graph, first);
  if (!layer || layer->kind != InferenceLayer::Kind::conv2d || layer->padding_mode != ops::PaddingMode::zeros) return 0;
  if (!layer->bias && layer->activation.kind == Activation::none) return 0;
  const Shape in = graph.input_shapes(first)[0].prepend(1);
  const kernels::Conv2dShape shape = ops::conv2d_shape(in, graph.node(first).output[2], layer->window, layer->groups);
  return kernels::conv2d_applies_epilogue(shape, target.compute, target.device) ? first : 0;
}

/// The activation of a sum of two, or null.
const ActivationOptions* sum_of_two(const Graph& graph, NodeId node) {
  if (node > graph.output() || graph.node(node).inputs.size() != 2) return nullptr;
  const Layer& layer = *graph.node(node).layer;
  return layer.kind() == "add" ? layer.options<ActivationOptions>() : nullptr;
}

NodeId match_sum(const Graph& graph, NodeId first, const FusionTarget&) {
  const std::optional<InferenceLayer> layer = layer_at(graph, first);
  if (!layer || layer->activation.kind != Activation::none) return 0;
  return sum_of_two(graph, first + 1) != nullptr ? first + 1 : 0;
}

/// The op, over the layer's parameters.
class BoundInferenceLayer : public BoundLayer {
 public:
  BoundInferenceLayer(const InferenceLayer& layer, const Shape& in, Parameter& weight, Parameter* bias)
      : layer_(layer), in_(in), weight_(weight), bias_(bias) {}

  void prepare_inference(const Context& context) override {
    if (layer_.kind == InferenceLayer::Kind::depthwise) return;
    const auto [in, window] = padded();
    ops::pack_conv2d_weight(context, in, weight_as_filters(), window, layer_.groups);
  }

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const ops::InferenceEpilogue epilogue{.bias = bias_ != nullptr ? bias_->value() : Tensor(),
                                          .residual = inputs.size() > 1 ? std::move(inputs[1]) : Tensor(),
                                          .f = {layer_.activation.kind, layer_.activation.slope}};
    Tensor x = std::move(inputs[0]);
    if (layer_.kind == InferenceLayer::Kind::depthwise)
      return ops::depthwise_conv2d_inference(context, x, weight_.value(), layer_.window, epilogue);
    if (layer_.kind == InferenceLayer::Kind::dense) return dense(context, x, epilogue);
    const Window2d window = padded().second;
    if (pads()) x = ops::pad2d(context, x, layer_.window.resolve("conv2d", in_[0], in_[1]), layer_.padding_mode);
    return ops::conv2d_inference(context, x, weight_.value(), window, layer_.groups, epilogue);
  }

 private:
  bool pads() const {
    return layer_.kind == InferenceLayer::Kind::conv2d && layer_.padding_mode != ops::PaddingMode::zeros &&
           layer_.window.resolve("conv2d", in_[0], in_[1]) != Padding::symmetric(0);
  }

  /// A sample as the kernel reads it, and its window: without padding where another op has padded it.
  std::pair<Shape, Window2d> padded() const {
    if (layer_.kind == InferenceLayer::Kind::dense) return {Shape{1, 1, in_[0]}, {}};
    if (!pads()) return {in_, layer_.window};
    const Padding amounts = layer_.window.resolve("conv2d", in_[0], in_[1]);
    Window2d window = layer_.window;
    window.padding = Padding::valid();
    return {Shape{in_[0] + amounts.top + amounts.bottom, in_[1] + amounts.left + amounts.right, in_[2]}, window};
  }

  /// A dense layer is a convolution of images of one pixel.
  Tensor weight_as_filters() const {
    const Tensor w = weight_.value();
    return layer_.kind == InferenceLayer::Kind::dense ? w.view({w.shape()[0], 1, 1, w.shape()[1]}) : w;
  }
  Tensor dense(const Context& context, const Tensor& x, ops::InferenceEpilogue epilogue) const {
    const Tensor w = weight_as_filters();
    const Shape out{x.shape()[0], w.shape()[0]};
    if (epilogue.residual.defined()) epilogue.residual = epilogue.residual.view({out[0], 1, 1, out[1]});
    return ops::conv2d_inference(context, x.view({x.shape()[0], 1, 1, x.shape()[1]}), w, {}, 1, epilogue).view(out);
  }

  InferenceLayer layer_;
  Shape in_;
  Parameter& weight_;
  Parameter* bias_;
};

/// The op of a frozen layer. Where somebody wants a gradient all the same, of the model's input, the ops that record
/// one.
class BoundFrozenLayer : public BoundLayer {
 public:
  BoundFrozenLayer(const InferenceLayer& layer, Parameter& weight, Parameter* bias)
      : layer_(layer), weight_(weight), bias_(bias) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]), w = weight_.value(), b = bias_ != nullptr ? bias_->value() : Tensor();
    const ActivationFunction f{layer_.activation.kind, layer_.activation.slope};
    if (!records(context, {&x, &w, &b}))
      return ops::conv2d_inference(context, x, w, layer_.window, layer_.groups, {.bias = b, .f = f});
    Tensor y = ops::conv2d(context.inner(), x, w, layer_.window, layer_.groups);
    if (bias_ != nullptr) return ops::bias_activation(context, std::move(y), b, f);
    return ops::activation(context, std::move(y), f.kind, f.slope);
  }

 private:
  InferenceLayer layer_;
  Parameter& weight_;
  Parameter* bias_;
};

std::unique_ptr<BoundLayer> bind_frozen(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                        BufferArena&) {
  const std::string& name = graph.node(fusion.first).name;
  const InferenceLayer layer = layer_at(graph, fusion.first).value();
  return std::make_unique<BoundFrozenLayer>(layer, *parameters.find(name + "/weight"),
                                            layer.bias ? parameters.find(name + "/bias") : nullptr);
}

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const GraphNode& node = graph.node(fusion.first);
  InferenceLayer layer = layer_at(graph, fusion.first).value();
  if (fusion.last > fusion.first) layer.activation = *sum_of_two(graph, fusion.last);
  return std::make_unique<BoundInferenceLayer>(layer, graph.input_shapes(fusion.first)[0],
                                               *parameters.find(node.name + "/weight"),
                                               layer.bias ? parameters.find(node.name + "/bias") : nullptr);
}

constexpr FusionPattern kPatterns[] = {
    // conv2d, depthwise_conv2d or dense without activation, add of two
    {.name = "layer_sum", .match = match_sum, .bind = bind, .reads_outside = true},
    // conv2d, depthwise_conv2d or dense
    {.name = "layer_epilogue", .match = match_layer, .bind = bind}};

}  // namespace

const std::span<const FusionPattern> kInferenceChains = kPatterns;

namespace {
constexpr FusionPattern kFrozenPatterns[] = {
    // conv2d with bias or activation, frozen
    {.name = "frozen_conv2d", .match = match_frozen, .bind = bind_frozen}};
}

const std::span<const FusionPattern> kFrozenLayers = kFrozenPatterns;

}  // namespace bantam::fusion
