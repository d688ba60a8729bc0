// flatten, reshape and permute. A flattened image stays in ONNX' order; the layers after it have their weights
// permuted.
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

LayerValue write_flatten(GraphWriter& writer, const LayerInputs& layer) {
  LayerValue& x = layer.value();
  if (x.shape.rank() == 1) return x;
  const std::map<std::string, Attribute> axis{{"axis", std::int64_t{1}}};
  if (x.order() == Order::channels_last) return {.shape = layer.output, .last = writer.add("Flatten", {x.last}, axis)};
  const bool same_order = x.shape[2] == 1 || x.shape[0] * x.shape[1] == 1;
  const std::string y = writer.add("Flatten", {x.first}, axis);
  if (same_order) return {.shape = layer.output, .last = y};
  return {.shape = layer.output, .first = y, .image = x.shape};
}

LayerValue write_reshape(GraphWriter& writer, const LayerInputs& layer) {
  const std::string x = writer.channels_last(layer.value());
  return {.shape = layer.output, .last = writer.reshape(x, batched(0, layer.output))};
}

/// Reads the order that is there, in which axis a of a sample is the value's axis a + 1, or with channels first
/// (a + 1) % 3 + 1.
LayerValue write_permute(GraphWriter& writer, const LayerInputs& layer) {
  LayerValue& x = layer.value();
  if (x.shape.rank() < 2) return x;
  const bool first = x.order() == Order::channels_first;
  std::vector<std::int64_t> perm{0};
  for (const std::int64_t dim : layer.options<PermuteOptions>().dims) perm.push_back(first ? dim % 3 + 1 : dim);
  return {.shape = layer.output, .last = writer.add("Transpose", {first ? x.first : x.last}, {{"perm", perm}})};
}

}  // namespace

LayerWriters view_writers() {
  return {{"flatten", write_flatten}, {"reshape", write_reshape}, {"permute", write_permute}};
}

}  // namespace bantam::onnx
