// Layers of one value at a time, and softmax. Their operators read any order of axes.
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

std::string clip(GraphWriter& writer, const std::string& x, float least, float most) {
  return writer.add("Clip", {x, writer.scalar(least), writer.scalar(most)});
}

std::string sigmoid_shaped(GraphWriter& writer, const std::string& x) {
  return writer.add("HardSigmoid", {x}, {{"alpha", 1.0f / 6.0f}, {"beta", 0.5f}});
}

/// x/2·(1 + erf(x/√2)).
std::string gelu(GraphWriter& writer, const std::string& x) {
  if (writer.options().opset >= 20) return writer.add("Gelu", {x});
  const std::string scaled = writer.add("Div", {x, writer.scalar(1.41421356237309504880f)});
  const std::string erf = writer.add("Add", {writer.add("Erf", {scaled}), writer.scalar(1.0f)});
  return writer.add("Mul", {writer.add("Mul", {x, erf}), writer.scalar(0.5f)});
}

std::string hard_swish(GraphWriter& writer, const std::string& x) {
  if (writer.options().opset >= 14) return writer.add("HardSwish", {x});
  return writer.add("Mul", {x, sigmoid_shaped(writer, x)});
}

/// One node a value in either order.
template <class Write>
LayerValue mapped(const LayerValue& x, const Write& write) {
  return x.as(x.order(), write(x.in(x.order())));
}

LayerValue write_activation_layer(GraphWriter& writer, const LayerInputs& layer) {
  const ActivationOptions& options = layer.options<ActivationOptions>();
  return mapped(layer.value(), [&](const std::string& x) { return write_activation(writer, x, options); });
}

LayerValue write_softmax(GraphWriter& writer, const LayerInputs& layer) {
  const LayerValue& x = layer.value();
  const bool first = x.order() == Order::channels_first && x.shape.rank() == 3;
  return mapped(x, [&](const std::string& name) {
    return writer.add("Softmax", {name}, {{"axis", std::int64_t{first ? 1 : -1}}});
  });
}

LayerValue write_prelu(GraphWriter& writer, const LayerInputs& layer) {
  const LayerValue& x = layer.value();
  const std::string slope = layer.options<PReluOptions>().shared
                                ? writer.constant("slope", {1}, writer.weight("slope", {1}))
                                : writer.channel_weight("slope", x, x.order());
  return mapped(x, [&](const std::string& name) { return writer.add("PRelu", {name, slope}); });
}

LayerValue write_layer_scale(GraphWriter& writer, const LayerInputs& layer) {
  const LayerValue& x = layer.value();
  const std::string scale = writer.channel_weight("scale", x, x.order());
  return mapped(x, [&](const std::string& name) { return writer.add("Mul", {name, scale}); });
}

/// Dropout and its like are the identity in inference.
LayerValue pass_on(GraphWriter&, const LayerInputs& layer) { return layer.value(); }

}  // namespace

std::string write_activation(GraphWriter& writer, std::string x, const ActivationOptions& function) {
  switch (function.kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return writer.add("Relu", {x});
    case Activation::relu6:
      return clip(writer, x, 0.0f, 6.0f);
    case Activation::leaky_relu:
      return writer.add("LeakyRelu", {x}, {{"alpha", function.slope}});
    case Activation::gelu:
      return gelu(writer, x);
    case Activation::silu:
      return writer.add("Mul", {x, writer.add("Sigmoid", {x})});
    case Activation::sigmoid:
      return writer.add("Sigmoid", {x});
    case Activation::tanh:
      return writer.add("Tanh", {x});
    case Activation::elu:
      return writer.add("Elu", {x}, {{"alpha", function.slope}});
    case Activation::selu:
      return writer.add("Selu", {x},
                        {{"alpha", static_cast<float>(kSeluSlope)}, {"gamma", static_cast<float>(kSeluScale)}});
    case Activation::mish:
      return writer.add("Mul", {x, writer.add("Tanh", {writer.add("Softplus", {x})})});
    case Activation::hard_swish:
      return hard_swish(writer, x);
    case Activation::hard_sigmoid:
      return sigmoid_shaped(writer, x);
    case Activation::softplus:
      return writer.add("Softplus", {x});
  }
  return x;
}

LayerWriters elementwise_writers() {
  return {{"activation", write_activation_layer},
          {"softmax", write_softmax},
          {"prelu", write_prelu},
          {"layer_scale", write_layer_scale},
          {"dropout", pass_on},
          {"spatial_dropout", pass_on},
          {"drop_path", pass_on}};
}

}  // namespace bantam::onnx
