// A layer of inference as one op: a convolution or a dense layer with its bias and activation, and the sum after it.
// Then which layers become it.
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/engine/ops/pad2d.h"
#include "bantam/kernels/conv/conv2d_inference.h"
#include "bantam/kernels/depthwise/depthwise_inference.h"

namespace bantam::ops {
namespace {

/// Throws where an operand, where there is one, is of another type than x.
void check_type(const char* op, const char* what, const Tensor& operand, DType dtype) {
  if (operand.defined() && operand.dtype() != dtype)
    throw DTypeError(fmt::format("{}: x is {}, but {} is {}; expected one type", op, to_string(dtype), what,
                                 to_string(operand.dtype())));
}

/// Throws where an operand wants a gradient.
void check_records(const char* op, const Context& context, std::initializer_list<const Tensor*> operands) {
  if (records(context, operands))
    throw Error(fmt::format("{}: it has no backward; expected no tape, or operands that want no gradient", op));
}

/// Throws where an operand of the epilogue does not fit an output.
kernels::Epilogue checked(const char* op, const Context& context, const InferenceEpilogue& epilogue, const Tensor& y) {
  context.check_device(op, {&epilogue.bias, &epilogue.residual});
  check_type(op, "the bias", epilogue.bias, y.dtype());
  check_type(op, "the sum", epilogue.residual, y.dtype());
  if (epilogue.bias.defined() && epilogue.bias.shape() != Shape{y.shape()[-1]})
    throw ShapeError(
        fmt::format("{}: expected a bias ({}), got {}", op, y.shape()[-1], to_string(epilogue.bias.shape())));
  if (epilogue.residual.defined() && epilogue.residual.shape() != y.shape())
    throw ShapeError(fmt::format("{}: expected a sum with {}, got {}", op, to_string(y.shape()),
                                 to_string(epilogue.residual.shape())));
  return {.bias = epilogue.bias.defined() ? epilogue.bias.data() : nullptr,
          .residual = epilogue.residual.defined() ? epilogue.residual.data() : nullptr,
          .f = epilogue.f};
}

}  // namespace

void pack_conv2d_weight(const Context& context, const Shape& in, const Tensor& w, Window2d window,
                        std::int64_t groups) {
  window.kernel = {w.shape()[1], w.shape()[2]};
  const kernels::Conv2dShape shape = conv2d_shape(in.prepend(1), w.shape()[0], window, groups);
  const Scratch scratch = context.scratch(kernels::conv2d_pack_workspace_bytes(shape, w.dtype(), context.device.kind));
  BANTAM_KERNEL(context.exec, conv2d_pack_weights, shape, w.dtype(), w.data(), scratch.get());
}

Tensor conv2d_inference(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window,
                        std::int64_t groups, const InferenceEpilogue& epilogue) {
  const kernels::Conv2dShape shape = conv2d_shape(x, w, window, groups);
  const DType dtype = x.dtype();
  context.check_device("conv2d_inference", {&x, &w});
  check_records("conv2d_inference", context, {&x, &w, &epilogue.bias, &epilogue.residual});
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}, dtype);
  const kernels::Epilogue after = checked("conv2d_inference", context, epilogue, y);
  const Scratch scratch = context.scratch(kernels::conv2d_inference_workspace_bytes(shape, dtype, context.device.kind));
  BANTAM_KERNEL(context.exec, conv2d_inference, shape, dtype, x.data(), w.data(), after, y.data(), scratch.get());
  return y;
}

Tensor depthwise_conv2d_inference(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window,
                                  const InferenceEpilogue& epilogue) {
  const kernels::DepthwiseConv2dShape shape = depthwise_conv2d_shape("depthwise_conv2d", x, w, window);
  context.check_device("depthwise_conv2d_inference", {&x, &w});
  check_records("depthwise_conv2d_inference", context, {&x, &w, &epilogue.bias, &epilogue.residual});
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels()}, x.dtype());
  const kernels::Epilogue after = checked("depthwise_conv2d_inference", context, epilogue, y);
  BANTAM_KERNEL(context.exec, depthwise_conv2d_inference, shape, x.dtype(), x.data(), w.data(), after, y.data());
  return y;
}

}  // namespace bantam::ops

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
    return InferenceLayer{window_of(*conv), conv->groups, conv->bias,
                          conv->activation, Kind::conv2d, conv->padding_mode};
  if (const auto* depthwise = layer.options<DepthwiseConv2dOptions>())
    return InferenceLayer{window_of(*depthwise), 1, depthwise->bias, depthwise->activation, Kind::depthwise};
  if (const auto* product = layer.options<DenseOptions>())
    return InferenceLayer{.bias = product->bias, .activation = product->activation, .kind = Kind::dense};
  return std::nullopt;
}

NodeId match_layer(const Graph& graph, NodeId first, const FusionTarget&) { return layer_at(graph, first) ? first : 0; }

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
    if (layer_.kind == InferenceLayer::Kind::dense) return {Shape{1, in_.elements() / in_[-1], in_[-1]}, {}};
    if (!pads()) return {in_, layer_.window};
    const Padding amounts = layer_.window.resolve("conv2d", in_[0], in_[1]);
    Window2d window = layer_.window;
    window.padding = Padding::valid();
    return {Shape{in_[0] + amounts.top + amounts.bottom, in_[1] + amounts.left + amounts.right, in_[2]}, window};
  }

  /// A dense layer is a pointwise convolution of images of a row of pixels: one, or the tokens.
  Tensor weight_as_filters() const {
    const Tensor w = weight_.value();
    return layer_.kind == InferenceLayer::Kind::dense ? w.view({w.shape()[0], 1, 1, w.shape()[1]}) : w;
  }
  Tensor dense(const Context& context, const Tensor& x, ops::InferenceEpilogue epilogue) const {
    const Tensor w = weight_as_filters();
    const Shape image = padded().first.prepend(x.shape()[0]), out = x.shape().with(-1, w.shape()[0]);
    if (epilogue.residual.defined()) epilogue.residual = epilogue.residual.view(image.with(-1, out[-1]));
    return ops::conv2d_inference(context, x.view(image), w, {}, 1, epilogue).view(out);
  }

  InferenceLayer layer_;
  Shape in_;
  Parameter& weight_;
  Parameter* bias_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const GraphNode& node = graph.node(fusion.first);
  InferenceLayer layer = layer_at(graph, fusion.first).value();
  if (fusion.last > fusion.first) layer.activation = *sum_of_two(graph, fusion.last);
  return std::make_unique<BoundInferenceLayer>(layer, graph.input_shapes(fusion.first)[0],
                                               *parameters.find(node.name + "/weight"),
                                               layer.bias ? parameters.find(node.name + "/bias") : nullptr);
}

}  // namespace

/// conv2d, depthwise_conv2d or dense without activation, add of two.
extern const FusionPattern kLayerSum{
    .name = "layer_sum", .match = match_sum, .bind = bind, .reads_outside = true, .use = FusionPattern::Use::inference};
/// conv2d, depthwise_conv2d or dense.
extern const FusionPattern kLayerEpilogue{
    .name = "layer_epilogue", .match = match_layer, .bind = bind, .use = FusionPattern::Use::inference};

}  // namespace bantam::fusion
