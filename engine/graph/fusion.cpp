// The list of patterns, and their search over a graph.
#include "bantam/engine/graph/fusion.h"

#include <algorithm>
#include <span>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"

namespace bantam {
namespace {

/// Earlier ones are preferred where two begin at one node.
std::span<const FusionPattern* const> patterns() {
  static constexpr const FusionPattern* kAll[] = {&fusion::kNormDepthwise, &fusion::kPooledSeparableBlock,
                                                  &fusion::kSeparableBlock, &fusion::kClassifierHead};
  return kAll;
}

/// Whether [first, last] is a chain: each node reads the one before it, and nobody else does.
bool is_chain(const Graph& graph, NodeId first, NodeId last) {
  for (NodeId node = first + 1; node <= last; ++node)
    if (graph.node(node).inputs != std::vector<NodeId>{node - 1}) return false;
  for (NodeId node = first + 2; node <= graph.output(); ++node)
    for (const NodeId input : graph.node(node).inputs)
      if (input >= first && input < last && node != input + 1) return false;
  return true;
}

}  // namespace

std::vector<Fusion> find_fusions(const Graph& graph, const FusionTarget& target) {
  std::vector<Fusion> found;
  for (NodeId node = 1; node <= graph.output();) {
    NodeId next = node + 1;
    for (const FusionPattern* pattern : patterns()) {
      const NodeId last = pattern->match(graph, node, target);
      if (last == 0 || !is_chain(graph, node, last)) continue;
      found.push_back({node, last, pattern});
      if (pattern->defers_norm != nullptr) found.back().defers_norm = pattern->defers_norm(graph, found.back(), target);
      next = last + 1;
      break;
    }
    node = next;
  }
  return found;
}

}  // namespace bantam
