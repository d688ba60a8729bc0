// Layers of tokens: class_token and position_embedding.
#include <array>

#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

/// (batch, count, C): the token for each sample of x.
std::string expanded(GraphWriter& writer, const std::string& token, const Shape& shape, const std::string& x) {
  if (writer.options().batch > 0)
    return writer.add("Expand", {token, writer.integers("shape", {writer.options().batch, shape[0], shape[1]})});
  const std::string batch =
      writer.add("Slice", {writer.add("Shape", {x}), writer.integers("starts", {0}), writer.integers("ends", {1})});
  const std::string to =
      writer.add("Concat", {batch, writer.integers("shape", {shape[0], shape[1]})}, {{"axis", std::int64_t{0}}});
  return writer.add("Expand", {token, to});
}

LayerValue write_class_token(GraphWriter& writer, const LayerInputs& layer) {
  const Shape tokens{layer.options<ClassTokenOptions>().count, layer.output[-1]};
  std::string x = writer.channels_last(layer.value());
  if (layer.value().shape.rank() == 3) x = writer.reshape(x, {0, layer.output[0] - tokens[0], tokens[1]});
  const std::string token = writer.constant("token", {1, tokens[0], tokens[1]}, writer.weight("token", tokens));
  return {.shape = layer.output,
          .last = writer.add("Concat", {expanded(writer, token, tokens, x), x}, {{"axis", std::int64_t{1}}})};
}

LayerValue write_position_embedding(GraphWriter& writer, const LayerInputs& layer) {
  const LayerValue& x = layer.value();
  std::vector<float> embedding = writer.weight("embedding", x.shape);
  Shape shape = x.shape;
  if (x.order() == Order::channels_first) {
    embedding = permuted(embedding, shape.extents(), std::array<std::size_t, 3>{2, 0, 1});
    shape = {shape[2], shape[0], shape[1]};
  }
  const std::span<const std::int64_t> dims = shape.extents();
  return x.as(x.order(), writer.add("Add", {x.in(x.order()),
                                            writer.constant("embedding", {dims.begin(), dims.end()}, embedding)}));
}

}  // namespace

LayerWriters token_writers() {
  return {{"class_token", write_class_token}, {"position_embedding", write_position_embedding}};
}

}  // namespace bantam::onnx
