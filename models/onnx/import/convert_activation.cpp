// Activations, softmax, and layers of training alone.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {
namespace {

/// A layer of each value by itself: its output lies as its input does.
void add_elementwise(Importer& importer, const Node& node, ImportedLayer layer) {
  View view = importer.value(node, 0);
  layer.inputs = {view.layer};
  view.layer = importer.add(node, std::move(layer));
  importer.define(node, std::move(view));
}

/// `kOp` has the same name in small letters, or the one beside it.
void convert_plain(Importer& importer, const Node& node) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"Relu", "relu"}, {"Sigmoid", "sigmoid"}, {"Tanh", "tanh"}, {"Softplus", "softplus"}, {"HardSwish", "hard_swish"},
      {"Mish", "mish"}, {"Gelu", "gelu"}};
  const auto* kind = std::ranges::find(kKinds, node.op, &std::pair<std::string_view, std::string_view>::first);
  add_elementwise(importer, node, {.kind = std::string(kind->second)});
}

/// x · sigmoid(k·x + 0.044715·k·x³) with k = 2·√(2/π): gelu by tanh, of layers that are there.
void convert_tanh_gelu(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  if (view.axes.size() == 1) view = importer.vector(node, 0);
  const Shape shape = importer.layers().shape(view.layer);
  if (shape.rank() != 1 && shape.rank() != 3) fail(node, "approximate 'tanh' of what is neither an image nor features");
  constexpr float kFactor = 1.5957691216f;
  const auto channels = static_cast<std::size_t>(shape[-1]);
  const auto add = [&](ImportedLayer layer) { return importer.add(node, std::move(layer)); };
  importer.share(view.layer);
  int x = view.layer;  // the convolution of one pixel needs an image
  if (shape.rank() == 1)
    x = add({.kind = "reshape",
             .options = {{"shape", fmt::format("[1, 1, {}]", shape[0])}},
             .inputs = {x},
             .name = "reshape"});
  importer.share(x);
  const int square = add({.kind = "multiply", .inputs = {x, x}});
  ImportedLayer affine{.kind = "depthwise_conv2d", .options = {{"kernel", "1"}}, .inputs = {square}};
  affine.tensors.emplace("weight", host_tensor({1, 1, shape[-1]}, std::vector<float>(channels, 0.044715f * kFactor)));
  affine.tensors.emplace("bias", host_tensor({shape[-1]}, std::vector<float>(channels, kFactor)));
  const int gate =
      add({.kind = "sigmoid", .inputs = {add({.kind = "multiply", .inputs = {add(std::move(affine)), x}})}});
  view.layer = add({.kind = "multiply", .inputs = {gate, x}});
  if (shape.rank() == 1)
    view.layer = add({.kind = "reshape",
                      .options = {{"shape", fmt::format("[{}]", shape[0])}},
                      .inputs = {view.layer},
                      .name = "reshape"});
  importer.note(
      "gelu by tanh is written as layers of products and a sigmoid; `gelu`, the exact one, is faster and up to 0.0005 "
      "off");
  importer.define(node, std::move(view));
}

void convert_gelu(Importer& importer, const Node& node) {
  const std::string form = text(node, "approximate", "none");
  if (form == "tanh") return convert_tanh_gelu(importer, node);
  if (form != "none") fail(node, fmt::format("approximate '{}'; expected none or tanh", form));
  convert_plain(importer, node);
}

void convert_swish(Importer& importer, const Node& node) {
  if (number(node, "alpha", 1) != 1) fail(node, "an alpha other than 1, which silu does not have");
  add_elementwise(importer, node, {.kind = "silu"});
}

void convert_leaky_relu(Importer& importer, const Node& node) {
  ImportedLayer layer{.kind = "leaky_relu"};
  if (const float slope = number(node, "alpha", 0.01f); slope != 0.01f) layer.set("slope", fmt::format("{}", slope));
  add_elementwise(importer, node, std::move(layer));
}

void convert_elu(Importer& importer, const Node& node) {
  ImportedLayer layer{.kind = "elu"};
  if (const float alpha = number(node, "alpha", 1); alpha != 1) layer.set("alpha", fmt::format("{}", alpha));
  add_elementwise(importer, node, std::move(layer));
}

void convert_selu(Importer& importer, const Node& node) {
  const float alpha = number(node, "alpha", 1.67326319f), gamma = number(node, "gamma", 1.05070102f);
  if (std::abs(alpha - 1.67326f) > 1e-4f || std::abs(gamma - 1.0507f) > 1e-4f)
    fail(node, fmt::format("alpha {} and gamma {}; expected 1.67326 and 1.0507, selu's", alpha, gamma));
  add_elementwise(importer, node, {.kind = "selu"});
}

void convert_hard_sigmoid(Importer& importer, const Node& node) {
  const float alpha = number(node, "alpha", 0.2f), beta = number(node, "beta", 0.5f);
  if (std::abs(alpha - 1.0f / 6) > 1e-6f || beta != 0.5f)
    fail(node, fmt::format("alpha {} and beta {}; expected 1/6 and 0.5: hard_sigmoid is PyTorch's", alpha, beta));
  add_elementwise(importer, node, {.kind = "hard_sigmoid"});
}

void convert_clip(Importer& importer, const Node& node) {
  const auto bound = [&](std::size_t input, const char* attribute, float otherwise) {
    const Tensor* tensor = importer.constant(node, input);
    if (tensor == nullptr) return number(node, attribute, otherwise);
    if (tensor->elements() != 1) fail(node, "bounds of several values");
    return tensor->as_floats()[0];
  };
  constexpr float kMost = std::numeric_limits<float>::max();
  const float low = bound(1, "min", -kMost), high = bound(2, "max", kMost);
  if (low != 0 || (high != 6 && high < 1e30f))
    fail(node, fmt::format("bounds {} and {}; expected 0 and 6 (relu6), or 0 alone (relu)", low, high));
  add_elementwise(importer, node, {.kind = high == 6 ? "relu6" : "relu"});
}

/// Max(x, 0), as some exporters write it.
void convert_max(Importer& importer, const Node& node) {
  for (std::size_t i = 0; i < 2 && node.inputs.size() == 2; ++i) {
    if (!importer.is_constant(node, i)) continue;
    const std::vector<float> values = importer.constant(node, i)->as_floats();
    if (values.size() != 1 || values[0] != 0) break;
    Node relu = node;
    relu.inputs = {node.inputs[1 - i]};
    return add_elementwise(importer, relu, {.kind = "relu"});
  }
  fail(node, "expected the larger of a value and 0 (relu)");
}

void convert_prelu(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  if (view.axes.size() == 1) view = importer.vector(node, 0);
  const Tensor& slopes = importer.needed_constant(node, 1, "the slopes");
  const auto values = importer.channel_values(node, view, slopes);
  if (!values || values->empty()) fail(node, "slopes that are neither one nor one a channel");
  const bool shared = slopes.elements() == 1;
  ImportedLayer layer{.kind = "prelu", .inputs = {view.layer}};
  if (shared) layer.set("shared", "true");
  const std::size_t count = shared ? 1 : values->size();
  layer.tensors.emplace("slope", host_tensor({static_cast<std::int64_t>(count)}, std::span(*values).first(count)));
  view.layer = importer.add(node, std::move(layer));
  importer.define(node, std::move(view));
}

/// The view whose layer has the axis of a softmax as its last one.
View softmax_view(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  if (view.axes.size() == 1) view = importer.vector(node, 0);
  const std::size_t rank = view.axes.size() + 1;
  const bool flattens = importer.opset() < 13;  // all axes from this one on are one
  const std::size_t axis = checked_axis(node, integer(node, "axis", flattens ? 1 : -1), rank);
  if (axis == 0 || (flattens && axis != rank - 1))
    fail(node, fmt::format("over axis {} of {}; expected that of the channels or features", axis, rank));
  return importer.innermost(node, view, axis - 1);
}

void convert_softmax(Importer& importer, const Node& node) {
  View view = softmax_view(importer, node);
  view.layer = importer.add(node, {.kind = "softmax", .inputs = {view.layer}});
  if (importer.is_output(node.outputs.empty() ? "" : node.outputs[0]))
    importer.note(
        describe(node) +
        ": the network ends with softmax, which losses of class labels compute themselves: remove it to train");
  importer.define(node, std::move(view));
}

/// At the end of a network it changes neither the classes' order nor a cross-entropy of them.
void convert_log_softmax(Importer& importer, const Node& node) {
  View view = softmax_view(importer, node);
  if (!importer.is_output(node.outputs.empty() ? "" : node.outputs[0]))
    fail(node, "within a network; at its end it is left out");
  importer.note(describe(node) + ": left out; the network's outputs are logits, of which losses compute it");
  importer.define(node, std::move(view));
}

/// Evaluation has none; training may.
void convert_dropout(Importer& importer, const Node& node) {
  float rate = number(node, "ratio", 0.5f);
  if (const Tensor* tensor = importer.constant(node, 1); tensor != nullptr && tensor->elements() == 1)
    rate = tensor->as_floats()[0];
  if (rate == 0) return importer.define(node, importer.value(node, 0));
  add_elementwise(importer, node, {.kind = "dropout", .options = {{"rate", fmt::format("{}", rate)}}});
}

constexpr std::pair<std::string_view, Converter> kActivationConverters[] = {{"Relu", convert_plain},
                                                                            {"Sigmoid", convert_plain},
                                                                            {"Tanh", convert_plain},
                                                                            {"Softplus", convert_plain},
                                                                            {"HardSwish", convert_plain},
                                                                            {"Mish", convert_plain},
                                                                            {"Gelu", convert_gelu},
                                                                            {"Swish", convert_swish},
                                                                            {"LeakyRelu", convert_leaky_relu},
                                                                            {"Elu", convert_elu},
                                                                            {"Selu", convert_selu},
                                                                            {"HardSigmoid", convert_hard_sigmoid},
                                                                            {"Clip", convert_clip},
                                                                            {"Max", convert_max},
                                                                            {"PRelu", convert_prelu},
                                                                            {"Softmax", convert_softmax},
                                                                            {"LogSoftmax", convert_log_softmax},
                                                                            {"Dropout", convert_dropout}};

}  // namespace

Converters activation_converters() { return kActivationConverters; }

}  // namespace bantam::onnx
