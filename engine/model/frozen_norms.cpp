// A copy of a graph, node by node.
#include "bantam/engine/model/frozen_norms.h"

#include <algorithm>

#include "bantam/engine/layers/layers.h"

namespace bantam {
namespace {

bool is_frozen(std::span<const ParameterGroup> groups, const std::string& name) {
  const int group = group_of(groups, name);
  return group >= 0 && groups[static_cast<std::size_t>(group)].is_frozen_for_good();
}

/// The layer itself, but for norms whose parameters are all frozen for good.
LayerPtr frozen_norm(const GraphNode& node, std::span<const ParameterGroup> groups) {
  const auto* options = node.layer->options<BatchNormOptions>();
  if (options == nullptr || (!options->scale && !options->shift)) return node.layer;
  const bool scale = !options->scale || is_frozen(groups, node.name + "/scale"),
             shift = !options->shift || is_frozen(groups, node.name + "/shift");
  if (!scale || !shift) return node.layer;
  BatchNormOptions frozen = *options;
  frozen.frozen = true;
  return batch_norm(frozen);
}

}  // namespace

Graph with_frozen_norms(const Graph& graph, std::span<const ParameterGroup> groups) {
  const auto freezes = [](const ParameterGroup& group) { return group.is_frozen_for_good(); };
  if (std::ranges::none_of(groups, freezes)) return graph;
  Graph copy(graph.input_shape());
  for (NodeId node = 1; node <= graph.output(); ++node)
    copy.add(graph.node(node).name, frozen_norm(graph.node(node), groups), graph.node(node).inputs);
  return copy;
}

void declare_tensors(const Graph& graph, ParameterArena& parameters, BufferArena& buffers) {
  for (NodeId node = 1; node <= graph.output(); ++node) {
    LayerScope scope(graph.node(node).name, parameters, buffers);
    (void)graph.node(node).layer->bind(scope, buffers, graph.input_shapes(node));
  }
}

std::vector<char> nodes_that_train(const Graph& graph, std::span<const ParameterGroup> groups) {
  ParameterArena parameters;
  BufferArena buffers;
  parameters.set_groups({groups.begin(), groups.end()});
  std::vector<char> trains(graph.nodes().size(), 0);
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const std::int64_t before = parameters.trainable_count();
    LayerScope scope(graph.node(node).name, parameters, buffers);
    (void)graph.node(node).layer->bind(scope, buffers, graph.input_shapes(node));
    trains[static_cast<std::size_t>(node)] = static_cast<char>(parameters.trainable_count() > before);
  }
  return trains;
}

std::vector<bool> nodes_without_gradient(const Graph& graph, const std::vector<char>& trains) {
  std::vector<bool> without(graph.nodes().size(), true);
  for (NodeId node = 1; node <= graph.output(); ++node)
    without[static_cast<std::size_t>(node)] =
        trains[static_cast<std::size_t>(node)] == 0 && std::ranges::all_of(graph.node(node).inputs, [&](NodeId input) {
          return without[static_cast<std::size_t>(input)];
        });
  return without;
}

std::vector<std::string> parameter_names(const Graph& graph) {
  ParameterArena parameters;
  BufferArena buffers;
  declare_tensors(graph, parameters, buffers);
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters.all()) names.push_back(parameter.name());
  return names;
}

}  // namespace bantam
