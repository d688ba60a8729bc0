// A graph's layers as ONNX nodes, one after the other.
#include "bantam/models/onnx/onnx_export.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

constexpr std::int64_t kLeastOpset = 13, kMostOpset = 24;

const LayerWriters& writers() {
  static const LayerWriters table = [] {
    LayerWriters all;
    for (LayerWriters (*part)() : {convolution_writers, pool_writers, norm_writers, elementwise_writers, image_writers,
                                   join_writers, attention_writers, view_writers})
      all.merge(part());
    return all;
  }();
  return table;
}

LayerValue write_node(GraphWriter& writer, const Graph& graph, NodeId id, std::vector<LayerValue>& values) {
  const GraphNode& node = graph.node(id);
  const auto found = writers().find(node.layer->kind());
  if (found == writers().end())
    throw ConfigError(fmt::format("{}: only built-in kinds of layers can be written to ONNX", graph.describe(id)));
  std::vector<LayerValue*> inputs;
  for (const NodeId input : node.inputs) inputs.push_back(&values[static_cast<std::size_t>(input)]);
  writer.begin(node.name);
  LayerValue value = found->second(writer, {*node.layer, inputs, node.output, graph.describe(id)});
  writer.end(value);
  return value;
}

}  // namespace

void LayerInputs::fail_without_options() const {
  throw ConfigError(fmt::format("{}: it has not the options of the built-in kind, so that it cannot be written to ONNX",
                                description));
}

Model export_graph(const Graph& graph, const SafetensorsFile& weights, const ExportOptions& options) {
  if (options.opset < kLeastOpset || options.opset > kMostOpset)
    throw ConfigError(fmt::format("expected an opset from {} to {}, got {}", kLeastOpset, kMostOpset, options.opset));
  GraphWriter writer(weights, options);
  std::vector<LayerValue> values{writer.input(graph.input_shape())};
  for (NodeId id = 1; id <= graph.output(); ++id) values.push_back(write_node(writer, graph, id, values));
  Model model = writer.finish(values.back());
  model.producer = "bantam";
  model.graph_name = "bantam";
  // Names of folders may have any bytes, strings of an ONNX file are UTF-8.
  if (!options.class_names.empty())
    model.metadata["class_names"] = nlohmann::ordered_json(options.class_names)
                                        .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return model;
}

}  // namespace bantam::onnx
