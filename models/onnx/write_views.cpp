// flatten and reshape. A flattened image stays in ONNX' order; the layers after it have their weights permuted.
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

}  // namespace

LayerWriters view_writers() { return {{"flatten", write_flatten}, {"reshape", write_reshape}}; }

}  // namespace bantam::onnx
