// The search for patterns over a graph.
#include "bantam/engine/fusion/fusion.h"

#include <algorithm>

#include "bantam/engine/graph/graph.h"

namespace bantam {
namespace {

/// Whether `node` reads the one before it once, and nothing else, or, where it may, only what is before `first`.
bool continues_chain(const Graph& graph, NodeId first, NodeId node, bool reads_outside) {
  const std::vector<NodeId>& inputs = graph.node(node).inputs;
  const auto others = std::ranges::count_if(inputs, [&](NodeId input) { return input < first; });
  return std::ranges::count(inputs, node - 1) == 1 && others + 1 == std::ssize(inputs) &&
         (reads_outside || others == 0);
}

/// Whether [first, last] is a chain: each node reads the one before it, and nobody else does.
bool is_chain(const Graph& graph, NodeId first, NodeId last, bool reads_outside) {
  for (NodeId node = first + 1; node <= last; ++node)
    if (!continues_chain(graph, first, node, reads_outside)) return false;
  for (NodeId node = first; node < last; ++node)
    if (graph.only_reader(node) != node + 1) return false;
  return true;
}

/// Whether values of [first, last) are read by [first, last] alone.
bool is_region(const Graph& graph, NodeId first, NodeId last) {
  for (NodeId node = last + 1; node <= graph.output(); ++node)
    if (std::ranges::any_of(graph.node(node).inputs, [&](NodeId input) { return first <= input && input < last; }))
      return false;
  return true;
}

/// The fusion that begins at node `first`, by the first pattern that matches; the node alone where none does.
Fusion fusion_at(const Graph& graph, NodeId first, const FusionTarget& target) {
  for (const FusionPattern* pattern : fusion_patterns()) {
    if (!pattern->is_for(target)) continue;
    const NodeId last = pattern->match(graph, first, target);
    if (last == 0 ||
        !(pattern->region ? is_region(graph, first, last) : is_chain(graph, first, last, pattern->reads_outside)))
      continue;
    Fusion found{first, last, pattern};
    if (pattern->defers_norm != nullptr) found.defers_norm = pattern->defers_norm(graph, found, target);
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
