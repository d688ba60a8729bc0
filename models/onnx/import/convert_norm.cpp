// Normalisations. What exporters compose of them, such as group norm, is read as their views.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {
namespace {

std::string number_text(float value) { return fmt::format("{}", value); }

std::string scale_name(const Node& node, std::size_t input) {
  const std::string name = input < node.inputs.size() ? node.inputs[input] : "";
  for (const std::string_view end : {".weight", "/scale", ".scale"})
    if (name.ends_with(end)) return name_of_path(name.substr(0, name.size() - end.size()), node.op);
  return "";
}

bool all_are(const std::vector<float>& values, float expected) {
  return std::ranges::all_of(values, [&](float value) { return value == expected; });
}

/// A view of the node's input whose layer has the axis 1 of the value, channels, as its last axis.
View channels_last(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  if (view.axes.size() == 1) return importer.vector(node, 0);
  const int image = importer.image(node, 0);
  return image_view(image, importer.layers().shape(image));
}

/// A constant of one value a channel, in the layer's order.
HostTensor channel_tensor(Importer& importer, const Node& node, const View& view, std::size_t input) {
  Tensor tensor = importer.needed_constant(node, input, "a value a channel");
  if (tensor.dims.size() != 1 || tensor.dims[0] != view.extent(0))
    fail(node, fmt::format("input {} has not one value for each of {} channels", input, view.extent(0)));
  for (std::size_t i = 1; i < view.axes.size(); ++i) tensor.dims.push_back(1);
  const auto values = importer.channel_values(node, view, tensor);
  if (!values) fail(node, fmt::format("input {} has not one value for each of the channels", input));
  return host_tensor({std::ssize(*values)}, *values);
}

void convert_batch_norm(Importer& importer, const Node& node) {
  if (integer(node, "training_mode", 0) != 0)
    importer.note("BatchNormalization: exported for training; the running statistics are used");
  View view = channels_last(importer, node);
  ImportedLayer layer{.kind = "batch_norm", .inputs = {view.layer}, .name = scale_name(node, 1)};
  float momentum = number(node, "momentum", 0.9f);
  if (momentum == 0) {  // PyTorch's exporter does not know the module's; with 0 the last batch's statistics would stay
    momentum = 0.9f;
    importer.note("batch norms: the model does not say their momentum; it is 0.9, PyTorch's default");
  }
  layer.set("momentum", number_text(momentum));
  layer.set("epsilon", number_text(number(node, "epsilon", 1e-5f)));
  constexpr const char* kNames[] = {"scale", "shift", "running_mean", "running_variance"};
  for (std::size_t i = 0; i < 4; ++i) layer.tensors.emplace(kNames[i], channel_tensor(importer, node, view, i + 1));
  view.layer = importer.add(node, std::move(layer));
  importer.define(node, std::move(view));
}

void convert_layer_norm(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  if (view.axes.size() == 1) view = importer.vector(node, 0);
  const std::size_t rank = view.axes.size() + 1;
  if (checked_axis(node, integer(node, "axis", -1), rank) != rank - 1)
    fail(node, "normalises more than the last axis, which layer_norm does not");
  if (rank < 2) fail(node, "normalises the batch");
  view = importer.innermost(node, view, rank - 2);
  ImportedLayer layer{.kind = "layer_norm", .inputs = {view.layer}, .name = scale_name(node, 1)};
  layer.set("epsilon", number_text(number(node, "epsilon", 1e-5f)));
  constexpr const char* kNames[] = {"scale", "shift"};
  for (const std::size_t i : {0u, 1u}) {
    const Tensor* tensor = importer.constant(node, i + 1);
    const auto values = tensor != nullptr ? importer.channel_values(node, view, *tensor) : std::nullopt;
    if (tensor != nullptr && !values) fail(node, fmt::format("input {} has not one value a channel", i + 1));
    if (values)
      layer.tensors.emplace(kNames[i], host_tensor({std::ssize(*values)}, *values));
    else
      layer.set(kNames[i], "false");
  }
  view.layer = importer.add(node, std::move(layer));
  importer.define(node, std::move(view));
}

/// The axis that is normalised.
struct NormAxis {
  std::int64_t channels, groups;
};

/// Sets scale and shift of one value a group, or a channel; without those that change nothing.
void set_group_tensors(Importer& importer, const Node& node, ImportedLayer& layer, NormAxis norm) {
  const auto [channels, groups] = norm;
  constexpr const char* kNames[] = {"scale", "shift"};
  for (const std::size_t i : {0u, 1u}) {
    const Tensor& tensor = importer.needed_constant(node, i + 1, "a value a channel");
    const std::vector<float> values = tensor.as_floats();
    const std::int64_t count = std::ssize(values);
    const bool by_channel = node.op == "GroupNormalization" && count == channels;  // from opset 21 on
    if ((count != groups && !by_channel) || channels > (1 << 24))
      fail(node,
           fmt::format("input {} has {} values; there are {} channels in {} groups", i + 1, count, channels, groups));
    const bool by_exporter = channels != count || node.op == "InstanceNormalization";  // which has no form without them
    if (by_exporter && all_are(values, i == 0 ? 1.0f : 0.0f)) {
      layer.set(kNames[i], "false");
      continue;
    }
    std::vector<float> spread;
    for (std::int64_t c = 0; c < channels; ++c)
      spread.push_back(values[static_cast<std::size_t>(c / (channels / count))]);
    layer.tensors.emplace(kNames[i], host_tensor({channels}, spread));
  }
}

/// Axis 1 of the value is the channels, or, of an image that was reshaped to (batch, groups, …), groups of them.
void convert_instance_norm(Importer& importer, const Node& node) {
  View view = merged(importer.value(node, 0));
  const Shape& shape = importer.layers().shape(view.layer);
  const std::int64_t groups = view.axes.size() > 1 ? view.extent(0) : 0;
  const std::int64_t channels = shape.rank() > 0 ? shape[-1] : 1;
  if (view.axes.size() < 2 || channels % std::max<std::int64_t>(groups, 1) != 0)
    fail(node, "expected images (batch, channels, height, width)");
  // The channels are the last axis; their first atom must be the groups.
  std::size_t first = view.atoms.size();
  for (std::int64_t rest = channels; rest > 1 && first > 0; rest /= view.atoms[first]) --first;
  const std::vector<int>& axis = view.axes[0];
  if (groups > 1 && (axis.size() != 1 || static_cast<std::size_t>(axis[0]) != first))
    fail(node, "normalises an axis that is not that of the channels or of groups of them");
  ImportedLayer layer{.kind = groups == channels ? "instance_norm" : "group_norm", .inputs = {view.layer}};
  layer.name = scale_name(node, 1);
  if (groups != channels) layer.set("groups", fmt::format("{}", groups));
  layer.set("epsilon", number_text(number(node, "epsilon", 1e-5f)));
  set_group_tensors(importer, node, layer, {channels, groups});
  view.layer = importer.add(node, std::move(layer));
  importer.define(node, std::move(view));
}

void convert_group_norm(Importer& importer, const Node& node) {
  const int image = importer.image(node, 0);
  const std::int64_t channels = importer.layers().shape(image)[2];
  ImportedLayer layer{.kind = "group_norm", .inputs = {image}, .name = scale_name(node, 1)};
  const std::int64_t groups = integer(node, "num_groups", 0);
  if (groups < 1 || channels % groups != 0)
    fail(node, fmt::format("num_groups {} of {} channels; expected a divisor of them", groups, channels));
  layer.set("groups", fmt::format("{}", groups));
  layer.set("epsilon", number_text(number(node, "epsilon", 1e-5f)));
  set_group_tensors(importer, node, layer, {channels, groups});
  importer.define_image(node, importer.add(node, std::move(layer)));
}

/// A composite (composites.h): norms over all axes but the batch's and the channels'.
void convert_global_response_norm(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  const std::size_t rank = view.axes.size() + 1, axis = checked_axis(node, integer(node, "axis", 1), rank);
  const Shape& shape = importer.layers().shape(view.layer);
  std::set<std::size_t> axes{0, axis};
  for (const std::int64_t given : integers(node, "axes")) axes.insert(checked_axis(node, given, rank));
  if (axis == 0 || axes.size() != rank || integers(node, "axes").size() != rank - 2)
    fail(node, "a global response norm whose norms are not over all positions of each channel");
  if (shape.rank() < 2 || !is_innermost(view, axis - 1, shape[-1]))
    fail(node, "normalises an axis that is not that of the channels");
  ImportedLayer layer{.kind = "global_response_norm", .inputs = {view.layer}, .name = scale_name(node, 1)};
  layer.set("epsilon", number_text(number(node, "epsilon", 1e-6f)));
  constexpr const char* kNames[] = {"scale", "shift"};
  for (const std::size_t i : {0u, 1u}) {
    const auto values = importer.channel_values(node, view, importer.needed_constant(node, i + 1, "a value a channel"));
    if (!values) fail(node, fmt::format("input {} has not one value a channel", i + 1));
    layer.tensors.emplace(kNames[i], host_tensor({std::ssize(*values)}, *values));
  }
  view.layer = importer.add(node, std::move(layer));
  importer.define(node, std::move(view));
}

constexpr std::pair<std::string_view, Converter> kNormConverters[] = {
    {"BatchNormalization", convert_batch_norm},
    {"LayerNormalization", convert_layer_norm},
    {"InstanceNormalization", convert_instance_norm},
    {"GroupNormalization", convert_group_norm},
    {"GlobalResponseNormalization", convert_global_response_norm}};

}  // namespace

Converters norm_converters() { return kNormConverters; }

}  // namespace bantam::onnx
