// Norms exchanged in a copy of the graph.
#include "bantam/engine/model/synchronise.h"

#include <algorithm>

#include "bantam/engine/layers/norm_options.h"

namespace bantam {

Graph with_synchronised_norms(const Graph& graph) {
  Graph result(graph.input_shape());
  for (const GraphNode& node : graph.nodes()) {
    if (node.layer == nullptr) continue;
    const BatchNormOptions* const norm = batch_norm_options(*node.layer);
    result.add(node.name, norm != nullptr && !norm->frozen ? synchronised_batch_norm(*norm) : node.layer, node.inputs);
  }
  return result;
}

bool has_synchronised_norms(const Graph& graph) {
  return std::ranges::any_of(
      graph.nodes(), [](const GraphNode& node) { return node.layer != nullptr && is_synchronised(*node.layer); });
}

}  // namespace bantam
