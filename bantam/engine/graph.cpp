// Building graphs, and lowering them to segments.
#include "bantam/engine/graph.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

std::string unique_name(const std::vector<GraphNode>& nodes, std::string_view kind) {
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(nodes, [&](const GraphNode& node) { return node.name == name; });
  };
  std::string name(kind);
  for (int number = 2; taken(name); ++number) name = fmt::format("{}_{}", kind, number);
  return name;
}

/// "block1/conv" → "block1"; a name without a block is its own.
std::string block_of(const std::string& name) { return name.substr(0, name.find('/')); }

/// The nodes outside [first, last] that it reads, each once, in order.
std::vector<NodeId> outside_inputs(const Graph& graph, NodeId first, NodeId last) {
  std::set<NodeId> inputs;
  for (NodeId node = first; node <= last; ++node)
    for (const NodeId input : graph.nodes()[static_cast<std::size_t>(node)].inputs)
      if (input < first) inputs.insert(input);
  return {inputs.begin(), inputs.end()};
}

/// Whether a node after `last` reads one of [first, last).
bool leaks(const Graph& graph, NodeId first, NodeId last) {
  for (NodeId node = last + 1; node <= graph.output(); ++node)
    for (const NodeId input : graph.nodes()[static_cast<std::size_t>(node)].inputs)
      if (input >= first && input < last) return true;
  return false;
}

LoweredSegment segment(const Graph& graph, NodeId first, NodeId last, bool recompute) {
  return {first, last, recompute, outside_inputs(graph, first, last)};
}

/// Whether the options name this node or block.
bool names(const RecomputeOptions& options, const std::string& name) {
  return std::ranges::find(options.names, name) != options.names.end();
}

void check_known(const Graph& graph, const RecomputeOptions& options) {
  std::vector<std::string> known;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const std::string& name = graph.nodes()[static_cast<std::size_t>(node)].name;
    known.push_back(name);
    if (block_of(name) != name) known.push_back(block_of(name));
  }
  for (const std::string& name : options.names)
    if (std::ranges::find(known, name) == known.end()) {
      const auto near = nearest(name, known);
      throw ConfigError(fmt::format("recompute: no layer or block is named '{}'{}", name,
                                    near ? fmt::format("; did you mean '{}'?", *near) : std::string()));
    }
}

}  // namespace

Graph::Graph(Shape input) { nodes_.push_back({.name = "input", .output = input}); }

NodeId Graph::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  if (name.empty()) name = unique_name(nodes_, layer->kind());
  if (std::ranges::any_of(nodes_, [&](const GraphNode& node) { return node.name == name; }))
    throw ConfigError(fmt::format("two layers are named '{}'", name));
  std::vector<Shape> shapes;
  for (const NodeId input : inputs) {
    if (input < 0 || input > output()) throw ShapeError(fmt::format("layer '{}': there is no node {}", name, input));
    shapes.push_back(nodes_[static_cast<std::size_t>(input)].output);
  }
  Shape out;
  try {
    out = layer->output_shape(shapes);
  } catch (const ShapeError& error) {
    throw ShapeError(fmt::format("layer '{}': {}", name, error.what()));
  }
  nodes_.push_back({std::move(name), std::move(layer), std::move(inputs), out});
  return output();
}

std::vector<LoweredSegment> lower(const Graph& graph, const RecomputeOptions& options) {
  using Kind = RecomputeOptions::Kind;
  std::vector<LoweredSegment> segments;
  const auto name_of = [&](NodeId node) -> const std::string& {
    return graph.nodes()[static_cast<std::size_t>(node)].name;
  };
  for (NodeId first = 1; first <= graph.output();) {
    const std::string block = block_of(name_of(first));
    NodeId last = first;
    while (last < graph.output() && block_of(name_of(last + 1)) == block) ++last;
    const bool whole = options.kind == Kind::all || (options.kind == Kind::named && names(options, block));
    if (whole && !leaks(graph, first, last)) {
      segments.push_back(segment(graph, first, last, true));
    } else if (whole && options.kind == Kind::named) {
      throw ConfigError(fmt::format("recompute: more than one value leaves block '{}'; name layers within it", block));
    } else {
      for (NodeId node = first; node <= last; ++node)
        segments.push_back(
            segment(graph, node, node, whole || (options.kind == Kind::named && names(options, name_of(node)))));
    }
    first = last + 1;
  }
  if (options.kind == Kind::named) check_known(graph, options);
  return segments;
}

}  // namespace bantam
