// Names, constants, and the order of axes in a model that is being written.
#include "bantam/models/onnx/graph_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::onnx {
namespace {

constexpr const char* kInput = "input";
constexpr const char* kOutput = "output";

/// (H, W, C) to (C, H, W).
Shape channels_first_shape(const Shape& image) { return {image[2], image[0], image[1]}; }

/// The lowest version of the file format with the opset, as ONNX' table of versions has it.
std::int64_t ir_version_of(std::int64_t opset) {
  if (opset <= 14) return 7;
  if (opset <= 18) return 8;
  if (opset <= 20) return 9;
  return opset <= 22 ? 10 : opset - 12;  // 11 and 12
}

Tensor float16_tensor(std::string name, std::vector<std::int64_t> dims, std::span<const float> values) {
  Tensor tensor{.name = std::move(name), .type = Type::float16, .dims = std::move(dims)};
  tensor.data.resize(values.size() * sizeof(Half));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Half half(values[i]);
    if (std::isinf(static_cast<float>(half)) && !std::isinf(values[i]))
      throw DataError(
          fmt::format("'{}' has the value {}, and float16 none above 65504: write float32", tensor.name, values[i]));
    std::memcpy(tensor.data.data() + i * sizeof(Half), &half, sizeof(Half));
  }
  return tensor;
}

}  // namespace

LayerValue LayerValue::as(Order order, std::string name) const {
  LayerValue value{.shape = shape, .image = image};
  (order == Order::channels_first ? value.first : value.last) = std::move(name);
  return value;
}

std::vector<std::int64_t> batched(std::int64_t first, const Shape& shape) {
  std::vector<std::int64_t> dims{first};
  dims.insert(dims.end(), shape.extents().begin(), shape.extents().end());
  return dims;
}

std::string GraphWriter::unused(std::string name) {
  std::string result = name;
  for (int i = 2; !names_.insert(result).second; ++i) result = fmt::format("{}_{}", name, i);
  return result;
}

void GraphWriter::rename(const std::string& from, const std::string& to) {
  for (Node& node : model_.nodes) {
    std::ranges::replace(node.inputs, from, to);
    std::ranges::replace(node.outputs, from, to);
  }
}

void GraphWriter::begin(std::string layer) {
  layer_ = std::move(layer);
  first_node_ = model_.nodes.size();
}

void GraphWriter::end(LayerValue& value) {
  if (model_.nodes.size() == first_node_) return;
  Node& last = model_.nodes.back();
  std::string& name = value.first.empty() ? value.last : value.first;
  if (last.outputs[0] != name || other_orders_.contains(name)) return;
  names_.erase(name);
  name = last.outputs[0] = unused(layer_);
  last.name = name;
}

std::string GraphWriter::add(std::string_view op, std::vector<std::string> inputs,
                             std::map<std::string, Attribute> attributes) {
  std::string name = unused(fmt::format("{}/{}", layer_, op));
  model_.nodes.push_back({.name = name,
                          .op = std::string(op),
                          .inputs = std::move(inputs),
                          .outputs = {name},
                          .attributes = std::move(attributes)});
  return name;
}

std::vector<std::string> GraphWriter::split(const std::string& x, std::initializer_list<std::int64_t> extents) {
  (void)add("Split", {x, integers("split", extents)}, {{"axis", std::int64_t{-1}}});
  std::vector<std::string>& outputs = model_.nodes.back().outputs;
  while (outputs.size() < extents.size()) outputs.push_back(unused(outputs[0]));
  return outputs;
}

Value GraphWriter::batch_value(std::string name, const Shape& shape) const {
  const bool first = shape.rank() == 3 && !options_.nhwc_input;
  const std::int64_t batch = options_.batch > 0 ? options_.batch : -1;
  Value value{.name = std::move(name), .dims = batched(batch, first ? channels_first_shape(shape) : shape)};
  value.names.resize(value.dims.size());
  if (batch < 0) value.names[0] = "batch";
  return value;
}

LayerValue GraphWriter::input(const Shape& shape) {
  begin(kInput);
  const bool first = shape.rank() == 3 && !options_.nhwc_input;
  names_.insert({kInput, kOutput});
  model_.inputs = {batch_value(kInput, shape)};
  if (options_.preprocessing) model_.inputs[0].type = Type::uint8;
  std::string x = kInput;
  if (options_.preprocessing) x = preprocessed(x, shape);
  if (options_.float16) x = cast(x, Type::float16);
  return first ? LayerValue{.shape = shape, .first = x} : LayerValue{.shape = shape, .last = x};
}

std::string GraphWriter::preprocessed(std::string x, const Shape& shape) {
  const auto& [scale, mean, std] = *options_.preprocessing;
  const std::int64_t channels = shape.rank() == 3 ? shape[2] : 0;
  const auto count = static_cast<std::size_t>(channels);
  if (channels == 0 || mean.size() != count || std.size() != count)
    throw ConfigError(
        fmt::format("preprocessing in the graph: expected images, and a mean and a deviation for each "
                    "channel; got {} and {} for an input of {}",
                    mean.size(), std.size(), to_string(shape)));
  std::vector<float> factor(count), shift(count);
  for (std::size_t c = 0; c < count; ++c) {
    factor[c] = static_cast<float>(scale / std[c]);
    shift[c] = static_cast<float>(-mean[c] / std[c]);
  }
  const std::vector<std::int64_t> dims =
      options_.nhwc_input ? std::vector<std::int64_t>{channels} : std::vector<std::int64_t>{channels, 1, 1};
  x = cast(x, Type::float32);
  x = add("Mul", {x, float32("factor", dims, factor)});
  return add("Add", {x, float32("shift", dims, shift)});
}

Model GraphWriter::finish(LayerValue& output) {
  begin(kOutput);
  const bool first = output.shape.rank() == 3 && !options_.nhwc_input;
  std::string y = first ? channels_first(output) : channels_last(output);
  if (options_.float16) y = cast(y, Type::float32);
  if (y == kInput) y = add("Identity", {y});
  rename(y, kOutput);
  model_.outputs = {batch_value(kOutput, output.shape)};
  model_.opset = options_.opset;
  model_.ir_version = ir_version_of(options_.opset);
  return std::move(model_);
}

const std::string& GraphWriter::channels_last(LayerValue& value) {
  if (!value.last.empty()) return value.last;
  const bool flat = value.shape.rank() == 1;
  std::string x = value.first;
  if (flat) x = reshape(x, {0, value.image[2], value.image[0], value.image[1]});
  x = add("Transpose", {x}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}});
  if (flat) x = add("Flatten", {x}, {{"axis", std::int64_t{1}}});
  other_orders_.insert(x);
  return value.last = x;
}

const std::string& GraphWriter::channels_first(LayerValue& value) {
  if (!value.first.empty()) return value.first;
  value.first = add("Transpose", {value.last}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}});
  other_orders_.insert(value.first);
  return value.first;
}

Order GraphWriter::common_order(std::span<LayerValue* const> values) {
  const auto has_first = [](const LayerValue* value) { return !value->first.empty(); };
  const bool images = std::ranges::all_of(values, [](const LayerValue* value) { return value->shape.rank() == 3; });
  const bool first =
      images ? std::ranges::any_of(values, has_first) : std::ranges::all_of(values, [&](const LayerValue* value) {
        return has_first(value) && value->image == values[0]->image && value->shape.rank() == values[0]->shape.rank();
      });
  for (LayerValue* value : values) first ? channels_first(*value) : channels_last(*value);
  return first ? Order::channels_first : Order::channels_last;
}

std::string GraphWriter::constant(std::string_view name, std::vector<std::int64_t> dims,
                                  std::span<const float> values) {
  if (!options_.float16) return float32(name, std::move(dims), values);
  model_.initializers.push_back(float16_tensor(unused(fmt::format("{}/{}", layer_, name)), std::move(dims), values));
  return model_.initializers.back().name;
}

std::string GraphWriter::float32(std::string_view name, std::vector<std::int64_t> dims, std::span<const float> values) {
  model_.initializers.push_back(Tensor::of(unused(fmt::format("{}/{}", layer_, name)), std::move(dims), values));
  return model_.initializers.back().name;
}

std::string GraphWriter::integers(std::string_view name, std::span<const std::int64_t> values) {
  model_.initializers.push_back(Tensor::of(unused(fmt::format("{}/{}", layer_, name)), {std::ssize(values)}, values));
  return model_.initializers.back().name;
}

std::vector<float> GraphWriter::weight(std::string_view name, const Shape& shape) const {
  const std::string full = fmt::format("{}/{}", layer_, name);
  const auto found = weights_.tensors.find(full);
  if (found == weights_.tensors.end())
    throw DataError(fmt::format("the weights have no tensor '{}' {}", full, to_string(shape)));
  const HostTensor& tensor = found->second;
  if (tensor.shape != shape || tensor.dtype != DType::float32)
    throw DataError(fmt::format("tensor '{}': expected float32 {}, got {} {}", full, to_string(shape),
                                to_string(tensor.dtype), to_string(tensor.shape)));
  const std::span<const float> values = float_values(tensor);
  return {values.begin(), values.end()};
}

std::string GraphWriter::channel_constant(std::string_view name, const LayerValue& like, Order order,
                                          std::vector<float> values) {
  const std::int64_t channels = std::ssize(values);
  if (order == Order::channels_last) return constant(name, {channels}, values);
  if (like.shape.rank() == 3) return constant(name, {channels, 1, 1}, values);
  return constant(name, {channels}, permuted(values, like.image.extents(), std::array<std::size_t, 3>{2, 0, 1}));
}

std::string GraphWriter::channel_weight(std::string_view name, const LayerValue& like, Order order) {
  return channel_constant(name, like, order, weight(name, {like.shape[-1]}));
}

std::string GraphWriter::cast(const std::string& x, Type type) {
  return add("Cast", {x}, {{"to", static_cast<std::int64_t>(type)}});
}

std::string GraphWriter::reshape(const std::string& x, std::span<const std::int64_t> dims) {
  return add("Reshape", {x, integers("shape", dims)});
}

}  // namespace bantam::onnx
