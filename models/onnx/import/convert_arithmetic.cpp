// Sums and products: of two values, joins; with constants, biases, scales and shifts.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {
namespace {

/// Views of the inputs by layers of one shape whose values lie alike; the result lies as they do.
struct Joined {
  std::vector<int> layers;
  View view;
};

/// The extents that all inputs have once those of one value are repeated; nothing where they have several numbers of
/// axes.
std::optional<std::vector<std::int64_t>> common_extents(Importer& importer, const Node& node) {
  std::vector<std::int64_t> extents = importer.value(node, 0).extents();
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    const std::vector<std::int64_t> other = importer.value(node, i).extents();
    if (other.size() != extents.size()) return std::nullopt;
    for (std::size_t axis = 0; axis < other.size(); ++axis) {
      if (extents[axis] != other[axis] && extents[axis] != 1 && other[axis] != 1) return std::nullopt;
      extents[axis] = std::max(extents[axis], other[axis]);
    }
  }
  return extents;
}

Joined alike(Importer& importer, const Node& node) {
  const auto extents = common_extents(importer, node);
  if (!extents) fail(node, "inputs of several shapes; expected one shape, or one value in place of an axis");
  std::vector<View> views;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    views.push_back(broadcast(importer, node, importer.value(node, i), *extents));
  Joined joined{.view = views[0]};
  const bool same = std::ranges::all_of(views, [&](const View& view) {
    return same_arrangement(view, joined.view) &&
           importer.layers().shape(view.layer) == importer.layers().shape(joined.view.layer);
  });
  const std::size_t axes = joined.view.axes.size();
  if (!same && axes == 0) fail(node, "inputs whose values lie in different orders");
  std::vector<std::size_t> order(axes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    joined.layers.push_back(same        ? views[i].layer
                            : axes == 3 ? importer.image(node, views[i])
                            : axes == 1 ? importer.vector(node, i).layer
                                        : importer.in_order(node, views[i], order).layer);
  if (same) return joined;
  if (axes == 3) {
    joined.view = image_view(joined.layers[0], importer.layers().shape(joined.layers[0]));
    return joined;
  }
  if (axes > 1) {
    joined.view = view_of(joined.layers[0], importer.layers().shape(joined.layers[0]),
                          std::vector<int>(order.begin(), order.end()));
    return joined;
  }
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (!same_arrangement(importer.value(node, i), joined.view))
      fail(node, "inputs whose values lie in different orders");
  joined.view = importer.vector(node, 0);
  return joined;
}

void add_join(Importer& importer, const Node& node, const char* kind) {
  if (node.inputs.size() == 1) return importer.define(node, importer.value(node, 0));
  Joined joined = alike(importer, node);
  joined.view.layer = importer.add(node, {.kind = kind, .inputs = joined.layers});
  importer.define(node, std::move(joined.view));
}

void convert_sum(Importer& importer, const Node& node) { add_join(importer, node, "add"); }
void convert_mean(Importer& importer, const Node& node) { add_join(importer, node, "average"); }

/// Whether `factors` has one value for each channel of `x`, an image, in the same order, and 1 along its other axes.
bool scales_channels(const View& x, const View& factors) {
  if (x.axes.size() != 3 || factors.axes.size() != 3) return false;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (factors.extent(axis) == 1) continue;
    // One atom: the channels as the layer has them, not permuted.
    const bool plain = merged(x).axes[axis].size() == 1 && merged(factors).axes[axis].size() == 1;
    if (!plain || factors.extent(axis) != x.extent(axis) || !is_innermost(x, axis, x.extent(axis))) return false;
  }
  return factors.elements() != x.elements();
}

void convert_product(Importer& importer, const Node& node) {
  for (const std::size_t i : {0u, 1u}) {
    const View &x = importer.value(node, i), &factors = importer.value(node, 1 - i);
    if (!scales_channels(x, factors)) continue;
    const Shape& shape = importer.layers().shape(x.layer);
    const Shape& factor_shape = importer.layers().shape(factors.layer);
    if (shape.rank() != 3 || factor_shape.rank() == 0 || factor_shape[-1] != shape[2] || factors.elements() != shape[2])
      continue;
    View view = x;
    view.layer = importer.add(node, {.kind = "multiply", .inputs = {x.layer, factors.layer}});
    return importer.define(node, std::move(view));
  }
  add_join(importer, node, "multiply");
}

/// Values of a constant operand for each channel, and the view that they are of.
struct ByChannel {
  View view;
  std::vector<float> values;
};

ByChannel by_channel(Importer& importer, const Node& node, View view, std::size_t constant) {
  const Tensor& tensor = importer.needed_constant(node, constant, "a number");
  if (view.axes.size() == 1 && tensor.elements() != 1) view = importer.vector(node, view);
  auto values = importer.channel_values(node, view, tensor);
  if (!values || values->empty())
    fail(node, "a constant that differs within a channel; expected one number, or one a channel");
  return {std::move(view), std::move(*values)};
}

HostTensor channels_tensor(const std::vector<float>& values) { return host_tensor({std::ssize(values)}, values); }

/// A layer that may have the tensor `name`, and was read without it: its option `name` is false.
bool lacks(const ImportedLayer& layer, const std::string& name) {
  const std::string* option = layer.option(name);
  return option != nullptr && *option == "false" && !layer.tensors.contains(name);
}

/// layer_scale with a shift: a depthwise convolution of one pixel with bias.
void make_affine(LayerList& layers, int layer, const std::vector<float>& shift) {
  ImportedLayer& affine = layers[layer];
  const std::span<const float> values = float_values(affine.tensors.at("scale"));
  const std::vector<float> scale(values.begin(), values.end());
  affine.kind = "depthwise_conv2d";
  affine.options = {{"kernel", "1"}};
  affine.tensors.clear();
  affine.tensors.emplace("weight", host_tensor({1, 1, std::ssize(scale)}, scale));
  affine.tensors.emplace("bias", channels_tensor(shift));
  layers.check(layer);
}

/// Whether the layer was made of constant factors and terms here, so that more of them change its tensors.
bool is_affine(const ImportedLayer& layer) {
  return layer.kind == "layer_scale" || (layer.kind == "depthwise_conv2d" && layer.options.size() == 1);
}

void multiply_tensor(ImportedLayer& layer, const std::string& name, const std::vector<float>& factors) {
  const auto found = layer.tensors.find(name);
  if (found == layer.tensors.end()) return;
  const std::span<const float> before = float_values(found->second);
  std::vector<float> values(before.begin(), before.end());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factors[i % factors.size()];
  found->second = host_tensor(found->second.shape, values);
}

constexpr const char* kOfInput =
    "the first layer scales and shifts the network's input, as `normalize` does in a pipeline";

/// y = factor · x, a factor a channel.
View scale(Importer& importer, const Node& node, ByChannel factors) {
  View view = std::move(factors.view);
  if (importer.is_exclusive(view.layer)) {
    ImportedLayer& before = importer.layers()[view.layer];
    const bool norm = lacks(before, "scale") && !before.tensors.contains("shift");
    if (norm) {
      before.erase("scale");
      before.tensors.emplace("scale", channels_tensor(factors.values));
      return view;
    }
    if (is_affine(before)) {
      for (const char* name : {"scale", "weight", "bias"}) multiply_tensor(before, name, factors.values);
      return view;
    }
  }
  ImportedLayer layer{.kind = "layer_scale", .inputs = {view.layer}};
  layer.tensors.emplace("scale", channels_tensor(factors.values));
  if (view.layer == kInput) importer.note(kOfInput);
  view.layer = importer.add(node, std::move(layer));
  return view;
}

/// y = x + term, a term a channel.
View shift(Importer& importer, const Node& node, ByChannel terms) {
  View view = std::move(terms.view);
  LayerList& layers = importer.layers();
  if (importer.is_exclusive(view.layer)) {
    ImportedLayer& before = layers[view.layer];
    for (const char* name : {"bias", "shift"})
      if (lacks(before, name)) {
        before.erase(name);
        before.tensors.emplace(name, channels_tensor(terms.values));
        return view;
      }
    if (before.kind == "layer_scale" && before.output.rank() == 3) {
      make_affine(layers, view.layer, terms.values);
      return view;
    }
  }
  if (layers.shape(view.layer).rank() != 3)
    fail(node,
         "a constant is added to what is neither an image nor a convolution, matrix product or norm without bias");
  ImportedLayer layer{.kind = "depthwise_conv2d", .options = {{"kernel", "1"}}, .inputs = {view.layer}};
  layer.tensors.emplace("weight",
                        host_tensor({1, 1, std::ssize(terms.values)}, std::vector<float>(terms.values.size(), 1)));
  layer.tensors.emplace("bias", channels_tensor(terms.values));
  if (view.layer == kInput) importer.note(kOfInput);
  view.layer = importer.add(node, std::move(layer));
  return view;
}

int negated(Importer& importer, const Node& node, int layer, std::size_t channels) {
  ImportedLayer negative{.kind = "layer_scale", .inputs = {layer}};
  negative.tensors.emplace("scale", channels_tensor(std::vector<float>(channels, -1.0f)));
  return importer.add(node, std::move(negative));
}

/// Before opset 7 an operand had other extents by attributes alone.
void check_broadcast(const Importer& importer, const Node& node) {
  if (importer.opset() < 7 && has_attribute(node, "axis"))
    fail(node, "attribute 'axis', of opsets before 7, is not supported");
}

/// The place of the constant of two operands; nothing where both are values.
std::optional<std::size_t> constant_operand(const Importer& importer, const Node& node) {
  check_broadcast(importer, node);
  if (node.inputs.size() != 2) fail(node, fmt::format("{} inputs; expected 2", node.inputs.size()));
  for (const std::size_t i : {0u, 1u})
    if (importer.is_constant(node, i)) return i;
  return std::nullopt;
}

/// Converts an operation of a value and a constant. False where both are values.
bool convert_with_constant(Importer& importer, const Node& node) {
  const auto constant = constant_operand(importer, node);
  if (constant) importer.define(node, with_constant(importer, node, importer.value(node, 1 - *constant), *constant));
  return constant.has_value();
}

void convert_add(Importer& importer, const Node& node) {
  if (!convert_with_constant(importer, node)) add_join(importer, node, "add");
}

void convert_mul(Importer& importer, const Node& node) {
  if (!convert_with_constant(importer, node)) convert_product(importer, node);
}

/// Converts Sub to an addition of the second operand times -1, whether it is a constant or not.
void convert_sub(Importer& importer, const Node& node) {
  if (convert_with_constant(importer, node)) return;
  Joined joined = alike(importer, node);
  const Shape& shape = importer.layers().shape(joined.layers[1]);
  joined.layers[1] =
      negated(importer, node, joined.layers[1], static_cast<std::size_t>(shape.rank() > 0 ? shape[-1] : 1));
  joined.view.layer = importer.add(node, {.kind = "add", .inputs = joined.layers});
  importer.define(node, std::move(joined.view));
}

void convert_div(Importer& importer, const Node& node) {
  if (!convert_with_constant(importer, node)) fail(node, "expected a constant to divide by");
}

/// Adds a constant of as many values as a sample, in the order of the layer's output: a position embedding. Nothing
/// where the constant has other extents, or is one of the channels alone.
std::optional<View> embedded(Importer& importer, const Node& node, View view, const Tensor& tensor) {
  std::vector<std::int64_t> dims = tensor.dims;
  while (dims.size() > view.axes.size() && dims[0] == 1) dims.erase(dims.begin());
  if (view.axes.size() < 2 || dims != view.extents() || importer.channel_values(node, view, tensor))
    return std::nullopt;
  const std::vector<float> values = tensor.as_floats();
  std::vector<float> ordered;
  for (const std::int64_t place : value_places(view)) ordered.push_back(values[static_cast<std::size_t>(place)]);
  ImportedLayer layer{.kind = "position_embedding", .inputs = {view.layer}, .name = "position_embedding"};
  layer.tensors.emplace("embedding", host_tensor(importer.layers().shape(view.layer), ordered));
  view.layer = importer.add(node, std::move(layer));
  return view;
}

void convert_pow(Importer& importer, const Node& node) {
  const std::vector<float> exponent = importer.needed_constant(node, 1, "the exponent").as_floats();
  if (exponent.size() != 1 || exponent[0] != 2) fail(node, "expected the exponent 2 (a product with itself)");
  View view = importer.value(node, 0);
  importer.share(view.layer);
  view.layer = importer.add(node, {.kind = "multiply", .inputs = {view.layer, view.layer}});
  importer.define(node, std::move(view));
}

void convert_neg(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  const Shape& shape = importer.layers().shape(view.layer);
  view.layer = negated(importer, node, view.layer, static_cast<std::size_t>(shape.rank() > 0 ? shape[-1] : 1));
  importer.define(node, std::move(view));
}

constexpr std::pair<std::string_view, Converter> kArithmeticConverters[] = {
    {"Add", convert_add}, {"Mul", convert_mul},   {"Sub", convert_sub}, {"Div", convert_div},
    {"Sum", convert_sum}, {"Mean", convert_mean}, {"Pow", convert_pow}, {"Neg", convert_neg}};

}  // namespace

View with_constant(Importer& importer, const Node& node, View view, std::size_t constant) {
  if (node.op == "Div" && constant != 1) fail(node, "expected a constant to divide by");
  if (node.op == "Add")
    if (auto found = embedded(importer, node, view, importer.needed_constant(node, constant, "a number")))
      return *found;
  ByChannel operands = by_channel(importer, node, std::move(view), constant);
  if (node.op == "Mul") return scale(importer, node, std::move(operands));
  if (node.op == "Div") {
    for (float& factor : operands.values) factor = 1 / factor;
    return scale(importer, node, std::move(operands));
  }
  if (node.op == "Sub" && constant == 1)
    for (float& term : operands.values) term = -term;
  if (node.op == "Sub" && constant == 0)
    operands.view.layer = negated(importer, node, operands.view.layer, operands.values.size());
  return shift(importer, node, std::move(operands));
}

Converters arithmetic_converters() { return kArithmeticConverters; }

}  // namespace bantam::onnx
