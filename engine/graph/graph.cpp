// Building graphs, and lowering them to segments.
#include "bantam/engine/graph/graph.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

/// "block1/conv" → "block1"; a name without a block is its own.

/// The nodes outside [first, last] that it reads, each once, in order.
std::vector<NodeId> outside_inputs(const Graph& graph, NodeId first, NodeId last) {
  std::set<NodeId> inputs;
  for (NodeId node = first; node <= last; ++node)
    for (const NodeId input : graph.node(node).inputs)
      if (input < first) inputs.insert(input);
  return {inputs.begin(), inputs.end()};
}

/// Whether a node after `last` reads one of [first, last).
bool leaks(const Graph& graph, NodeId first, NodeId last) {
  for (NodeId node = last + 1; node <= graph.output(); ++node)
    for (const NodeId input : graph.node(node).inputs)
      if (input >= first && input < last) return true;
  return false;
}

LoweredSegment segment(const Graph& graph, NodeId first, NodeId last, bool recompute) {
  return {first, last, recompute, outside_inputs(graph, first, last), {}, {}};
}

bool fused(const LoweredSegment& segment, NodeId node) {
  return std::ranges::any_of(segment.fusions,
                             [node](const Fusion& fusion) { return fusion.first <= node && node <= fusion.last; });
}

bool ends_in_left_norm(const LoweredSegment& segment, NodeId node) {
  return std::ranges::any_of(segment.fusions,
                             [node](const Fusion& fusion) { return fusion.last == node && fusion.leaves_norm; });
}

/// Fills LoweredSegment::deferred. What ends a stretch that runs again, or enters one, has to be there as it is.
void defer_norms(const Graph& graph, std::vector<LoweredSegment>& segments) {
  const auto stretch_of = [&](NodeId node) -> const LoweredSegment* {  // null: runs once
    const auto at = std::ranges::find_if(segments, [&](const LoweredSegment& s) { return node <= s.last; });
    return at->recompute ? &*at : nullptr;
  };
  for (LoweredSegment& segment : segments)
    for (NodeId node = segment.first; node <= segment.last; ++node) {
      const NodeId reader = graph.only_reader(node);
      if (reader == 0 || stretch_of(reader) != stretch_of(node)) continue;
      const bool alone = graph.node(node).layer->defers_norm() && !fused(segment, node) &&
                         graph.node(reader).layer->takes_deferred_norms();
      if (alone || ends_in_left_norm(segment, node)) segment.deferred.push_back(node);
    }
}

/// Nodes [first, last], and what they are called in an error.
struct Stretch {
  NodeId first = 1, last = 1;
  std::string name;
  bool contains(const Stretch& other) const { return first <= other.first && other.last <= last; }
};

/// Maximal runs of nodes of one block, in order; a node outside blocks is a run of its own.
std::vector<Stretch> block_runs(const Graph& graph) {
  std::vector<Stretch> runs;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const std::string block = block_of(graph.node(node).name);
    if (!runs.empty() && runs.back().name == block)
      runs.back().last = node;
    else
      runs.push_back({node, node, block});
  }
  return runs;
}

/// The runs or the node of that name. Throws ConfigError where there is none.
std::vector<Stretch> resolve_name(const Graph& graph, const std::string& name) {
  std::vector<Stretch> found;
  std::vector<std::string> known;
  for (const Stretch& run : block_runs(graph)) {
    known.push_back(run.name);
    if (run.name == name) found.push_back(run);
  }
  for (NodeId node = 1; node <= graph.output() && found.empty(); ++node) {
    known.push_back(graph.node(node).name);
    if (known.back() == name) found.push_back({node, node, name});
  }
  if (!found.empty()) return found;
  const auto near = nearest(name, known);
  throw ConfigError(fmt::format("recompute: no layer or block is named '{}'{}", name,
                                near ? fmt::format("; did you mean '{}'?", *near) : std::string()));
}

/// What one entry of the options names: a node, a block (each of its runs), or "first..last".
std::vector<Stretch> resolve_entry(const Graph& graph, const std::string& entry) {
  const std::size_t dots = entry.find("..");
  std::vector<Stretch> found;
  if (dots == std::string::npos) {
    found = resolve_name(graph, entry);
  } else {
    const NodeId first = resolve_name(graph, entry.substr(0, dots)).front().first;
    const NodeId last = resolve_name(graph, entry.substr(dots + 2)).back().last;
    if (last < first) throw ConfigError(fmt::format("recompute: the stretch '{}' ends before it begins", entry));
    found.push_back({first, last, entry});
  }
  for (const Stretch& stretch : found)
    if (stretch.first < stretch.last && leaks(graph, stretch.first, stretch.last))
      throw ConfigError(fmt::format("recompute: more than one value leaves {} '{}'; name layers within it",
                                    dots == std::string::npos ? "block" : "stretch", entry));
  return found;
}

/// The stretches that the options name, in order, without those inside others.
std::vector<Stretch> named_stretches(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Stretch> all, outer;
  for (const std::string& name : names)
    for (const Stretch& stretch : resolve_entry(graph, name)) all.push_back(stretch);
  std::ranges::sort(
      all, [](const Stretch& a, const Stretch& b) { return a.first != b.first ? a.first < b.first : a.last > b.last; });
  for (const Stretch& stretch : all) {
    if (!outer.empty() && outer.back().contains(stretch)) continue;
    if (!outer.empty() && stretch.first <= outer.back().last)
      throw ConfigError(fmt::format("recompute: '{}' and '{}' overlap", outer.back().name, stretch.name));
    outer.push_back(stretch);
  }
  return outer;
}

/// Whether a node alone is worth running again: cheap ones leave nothing but what recipes save already.
bool worth_again(const Graph& graph, NodeId node) { return !graph.node(node).layer->cheap(graph.input_shapes(node)); }

/// Every block as a whole, or node by node where more than one value leaves it.
std::vector<Stretch> all_stretches(const Graph& graph) {
  std::vector<Stretch> stretches;
  for (const Stretch& run : block_runs(graph)) {
    if (run.first < run.last && !leaks(graph, run.first, run.last)) {
      stretches.push_back(run);
      continue;
    }
    for (NodeId node = run.first; node <= run.last; ++node)
      if (worth_again(graph, node)) stretches.push_back({node, node, graph.node(node).name});
  }
  return stretches;
}

/// Stretches that cut a fusion take all of it in, with the node that its last norm is left to, but stop before one that
/// makes the loss. Where two cut the same, it is the first one's, and the second begins behind it: both as one would
/// keep less, but need it all at once. What then has no nodes left goes.
std::vector<Stretch> widened(const std::vector<Stretch>& stretches, std::span<const Fusion> fusions) {
  std::vector<Stretch> wide;
  for (Stretch stretch : stretches) {
    if (!wide.empty()) stretch.first = std::max(stretch.first, wide.back().last + 1);
    if (stretch.last < stretch.first) continue;
    for (const Fusion& fusion : fusions) {
      const NodeId last = fusion.leaves_norm ? fusion.last + 1 : fusion.last;
      if (last < stretch.first || stretch.last < fusion.first) continue;
      if (fusion.pattern != nullptr && fusion.pattern->makes_loss) {
        stretch.last = fusion.first - 1;
        continue;
      }
      stretch.first = std::min(stretch.first, fusion.first);
      stretch.last = std::max(stretch.last, last);
    }
    if (stretch.first <= stretch.last) wide.push_back(stretch);  // else nothing but an end that makes the loss
  }
  return wide;
}

}  // namespace

std::string block_of(const std::string& name) { return name.substr(0, name.find('/')); }

Graph::Graph(Shape input) {
  nodes_.push_back({.name = "input", .output = input});
  names_.insert("input");
}

/// The kind, else with the first number that is free. No name is ever free again, so counting goes on where it stopped.
std::string Graph::unused_name(const std::string& kind) {
  std::string name = kind;
  int& number = numbers_of_kind_.try_emplace(kind, 1).first->second;
  while (names_.contains(name)) name = fmt::format("{}_{}", kind, ++number);
  return name;
}

NodeId Graph::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  if (name.empty()) name = unused_name(std::string(layer->kind()));
  if (names_.contains(name)) throw ConfigError(fmt::format("two layers are named '{}'", name));
  std::vector<Shape> shapes;
  for (const NodeId input : inputs) {
    if (input < 0 || input > output()) throw ShapeError(fmt::format("layer '{}': there is no node {}", name, input));
    shapes.push_back(this->node(input).output);
  }
  Shape out;
  try {
    out = layer->output_shape(shapes);
  } catch (const ShapeError& error) {
    throw ShapeError(fmt::format("layer '{}': {}", name, error.what()));
  }
  names_.insert(name);
  nodes_.push_back({std::move(name), std::move(layer), std::move(inputs), out});
  return output();
}

std::vector<Shape> Graph::input_shapes(NodeId node) const {
  std::vector<Shape> shapes;
  for (const NodeId input : this->node(node).inputs) shapes.push_back(this->node(input).output);
  return shapes;
}

NodeId Graph::only_reader(NodeId node) const {
  NodeId reader = 0;
  for (NodeId later = node + 1; later <= output(); ++later)
    for (const NodeId input : this->node(later).inputs) {
      if (input != node) continue;
      if (reader != 0) return 0;
      reader = later;
    }
  return reader;
}

NodeId Graph::first_without_meta() const {
  for (NodeId node = 1; node <= output(); ++node)
    if (!this->node(node).layer->supports_meta()) return node;
  return 0;
}

std::string Graph::describe(NodeId node) const {
  const GraphNode& description = this->node(node);
  return fmt::format("layer '{}' ({})", description.name, description.layer ? description.layer->kind() : "input");
}

std::vector<LoweredSegment> lower(const Graph& graph, const RecomputeOptions& options,
                                  std::span<const Fusion> fusions) {
  using Kind = RecomputeOptions::Kind;
  std::vector<Stretch> stretches;
  if (options.kind == Kind::all) stretches = all_stretches(graph);
  if (options.kind == Kind::named) stretches = named_stretches(graph, options.names);
  stretches = widened(stretches, fusions);
  std::vector<LoweredSegment> segments;
  auto next = stretches.begin();
  auto fusion = fusions.begin();
  for (NodeId node = 1; node <= graph.output();) {
    const bool again = next != stretches.end() && next->first == node;
    NodeId last = again ? (next++)->last : node;
    if (!again && fusion != fusions.end() && fusion->first == node) last = fusion->last;
    segments.push_back(segment(graph, node, last, again));
    for (; fusion != fusions.end() && fusion->first <= last; ++fusion) segments.back().fusions.push_back(*fusion);
    node = last + 1;
  }
  defer_norms(graph, segments);
  return segments;
}

}  // namespace bantam
