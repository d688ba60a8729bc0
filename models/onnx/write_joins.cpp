// Layers that join inputs or weigh channels.
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

LayerValue write_add(GraphWriter& writer, const LayerInputs& layer) {
  const Order order = writer.common_order(layer.values);
  std::string sum = layer.value().in(order);
  for (const LayerValue* value : layer.values.subspan(1)) sum = writer.add("Add", {sum, value->in(order)});
  return layer.value().as(order, write_activation(writer, sum, layer.options<ActivationOptions>()));
}

LayerValue write_average(GraphWriter& writer, const LayerInputs& layer) {
  const Order order = writer.common_order(layer.values);
  std::vector<std::string> inputs;
  for (const LayerValue* value : layer.values) inputs.push_back(value->in(order));
  return layer.value().as(order, writer.add("Mean", std::move(inputs)));
}

LayerValue write_concat(GraphWriter& writer, const LayerInputs& layer) {
  const bool images = layer.output.rank() == 3;
  std::vector<std::string> inputs;
  for (LayerValue* value : layer.values)
    inputs.push_back(images ? writer.channels_first(*value) : writer.channels_last(*value));
  const std::string y = writer.add("Concat", std::move(inputs), {{"axis", std::int64_t{images ? 1 : -1}}});
  return images ? LayerValue{.shape = layer.output, .first = y} : LayerValue{.shape = layer.output, .last = y};
}

/// A factor with the axes of `product`: (C) beside (…, C) gets axes of one value.
std::string operand(GraphWriter& writer, LayerValue& value, const Shape& product) {
  const bool image = product.rank() == 3;
  if (value.shape.rank() == product.rank()) return image ? writer.channels_first(value) : writer.channels_last(value);
  const std::string& x = writer.channels_last(value);
  if (image) return writer.reshape(x, {0, value.shape[-1], 1, 1});
  std::vector<std::int64_t> dims(static_cast<std::size_t>(product.rank()) + 1, 1);
  dims.front() = 0, dims.back() = value.shape[-1];
  return writer.reshape(x, dims);
}

LayerValue write_multiply(GraphWriter& writer, const LayerInputs& layer) {
  std::string product = operand(writer, layer.value(), layer.output);
  for (LayerValue* value : layer.values.subspan(1))
    product = writer.add("Mul", {product, operand(writer, *value, layer.output)});
  if (layer.output.rank() == 3) return {.shape = layer.output, .first = product};
  return {.shape = layer.output, .last = product};
}

/// The layer's dense weights as a 1x1 convolution, which reads pooled images as they are.
std::string dense_convolution(GraphWriter& writer, const std::string& x, const std::string& part, const Shape& shape) {
  const std::vector<float> weight = writer.weight(part + "/weight", shape),
                           bias = writer.weight(part + "/bias", {shape[0]});
  return write_convolution(writer, {.x = x,
                                    .weight = writer.constant(part + "/weight", {shape[0], shape[1], 1, 1}, weight),
                                    .bias = writer.constant(part + "/bias", {shape[0]}, bias),
                                    .window = {.padding = Padding::symmetric(0)}});
}

LayerValue write_squeeze_excite(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<SqueezeExciteOptions>();
  const std::int64_t channels = layer.output[2];
  const std::string x = writer.channels_first(layer.value());
  std::string factor = writer.add("GlobalAveragePool", {x});
  factor = dense_convolution(writer, factor, "reduce", {options.units, channels});
  factor = write_activation(writer, factor, options.activation);
  factor = dense_convolution(writer, factor, "expand", {channels, options.units});
  factor = write_activation(writer, factor, {options.gate});
  return {.shape = layer.output, .first = writer.add("Mul", {x, factor})};
}

}  // namespace

LayerWriters join_writers() {
  return {{"add", write_add},
          {"average", write_average},
          {"multiply", write_multiply},
          {"concat", write_concat},
          {"squeeze_excite", write_squeeze_excite}};
}

}  // namespace bantam::onnx
