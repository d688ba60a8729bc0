// The search for patterns over a graph.
#include "bantam/engine/graph/fusion.h"

#include <span>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"

namespace bantam {
namespace {

/// Whether [first, last] is a chain: each node reads the one before it, and nobody else does.
bool is_chain(const Graph& graph, NodeId first, NodeId last) {
  for (NodeId node = first + 1; node <= last; ++node)
    if (graph.node(node).inputs != std::vector<NodeId>{node - 1}) return false;
  for (NodeId node = first + 2; node <= graph.output(); ++node)
    for (const NodeId input : graph.node(node).inputs)
      if (input >= first && input < last && node != input + 1) return false;
  return true;
}

/// What begins at `first`, by the first pattern that matches; without a pattern where none does.
Fusion fusion_at(const Graph& graph, NodeId first, const FusionTarget& target) {
  for (const std::span<const FusionPattern> table :
       {fusion::kNormChains, fusion::kSeparableBlocks, fusion::kClassifierHeads})
    for (const FusionPattern& pattern : table) {
      const NodeId last = pattern.match(graph, first, target);
      if (last == 0 || !is_chain(graph, first, last)) continue;
      Fusion found{first, last, &pattern};
      if (pattern.defers_norm != nullptr) found.defers_norm = pattern.defers_norm(graph, found, target);
      return found;
    }
  return {first, first};
}

}  // namespace

std::vector<Fusion> find_fusions(const Graph& graph, const FusionTarget& target) {
  std::vector<Fusion> found;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const Fusion fusion = fusion_at(graph, node, target);
    if (fusion.pattern == nullptr) continue;
    found.push_back(fusion);
    node = fusion.last;
  }
  return found;
}

}  // namespace bantam
