// Checkpoint segments from names, and what each operation does about norms, recipes and its neighbours.
#include "bantam/engine/model/lower.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

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

/// Nodes [first, last], and what they are called in an error.
struct NamedSegment {
  NodeId first = 1, last = 1;
  std::string name;
  bool contains(const NamedSegment& other) const { return first <= other.first && other.last <= last; }
};

/// Maximal runs of nodes of one block, in order; a node outside blocks is a run of its own.
std::vector<NamedSegment> block_runs(const Graph& graph) {
  std::vector<NamedSegment> runs;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const std::string block = block_of(graph.node(node).name);
    if (!runs.empty() && runs.back().name == block)
      runs.back().last = node;
    else
      runs.push_back({node, node, block});
  }
  return runs;
}

/// Every block that a node is in, from the outside in, and its own name: "stage", "stage/block1", "stage/block1/conv".
std::vector<std::string> names_around(const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
    names.push_back(name.substr(0, slash));
  names.push_back(name);
  return names;
}

/// The node of that name, or the runs of nodes of the block of that name, which may be in another block. Throws
/// ConfigError where there is none.
std::vector<NamedSegment> resolve_name(const Graph& graph, const std::string& name) {
  std::vector<NamedSegment> found;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const std::string& other = graph.node(node).name;
    if (other != name && !other.starts_with(name + "/")) continue;
    if (!found.empty() && found.back().last == node - 1)
      found.back().last = node;
    else
      found.push_back({node, node, name});
  }
  if (!found.empty()) return found;
  std::vector<std::string> known;
  for (const NamedSegment& run : block_runs(graph)) known.push_back(run.name);
  for (NodeId node = 1; node <= graph.output(); ++node)
    std::ranges::move(names_around(graph.node(node).name), std::back_inserter(known));
  const auto near = nearest(name, known);
  throw ConfigError(fmt::format("recompute: no layer or block is named '{}'{}", name,
                                near ? fmt::format("; did you mean '{}'?", *near) : std::string()));
}

/// Returns the segments that an entry of `recompute` names: a node, each run of a block's nodes, or "first..last".
std::vector<NamedSegment> resolve_entry(const Graph& graph, const std::string& entry) {
  const std::size_t dots = entry.find("..");
  std::vector<NamedSegment> found;
  if (dots == std::string::npos) {
    found = resolve_name(graph, entry);
  } else {
    const NodeId first = resolve_name(graph, entry.substr(0, dots)).front().first;
    const NodeId last = resolve_name(graph, entry.substr(dots + 2)).back().last;
    if (last < first) throw ConfigError(fmt::format("recompute: the segment '{}' ends before it begins", entry));
    found.push_back({first, last, entry});
  }
  for (const NamedSegment& segment : found)
    if (segment.first < segment.last && leaks(graph, segment.first, segment.last))
      throw ConfigError(fmt::format("recompute: more than one value is read outside {} '{}'; name layers within it",
                                    dots == std::string::npos ? "block" : "segment", entry));
  return found;
}

/// The segments that the options name, in order, without those inside others.
std::vector<NamedSegment> named_segments(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<NamedSegment> all, outer;
  for (const std::string& name : names)
    for (const NamedSegment& segment : resolve_entry(graph, name)) all.push_back(segment);
  std::ranges::sort(all, [](const NamedSegment& a, const NamedSegment& b) {
    return a.first != b.first ? a.first < b.first : a.last > b.last;
  });
  for (const NamedSegment& segment : all) {
    if (!outer.empty() && outer.back().contains(segment)) continue;
    if (!outer.empty() && segment.first <= outer.back().last)
      throw ConfigError(fmt::format("recompute: '{}' and '{}' overlap", outer.back().name, segment.name));
    outer.push_back(segment);
  }
  return outer;
}

/// Whether a node alone is worth recomputing: cheap ones save nothing but what recipes save already.
bool worth_recomputing(const Graph& graph, NodeId node) {
  return !graph.node(node).layer->cheap(graph.input_shapes(node));
}

/// Every block as a whole, or node by node where more than one of its values is read outside.
std::vector<NamedSegment> all_segments(const Graph& graph) {
  std::vector<NamedSegment> segments;
  for (const NamedSegment& run : block_runs(graph)) {
    if (run.first < run.last && !leaks(graph, run.first, run.last)) {
      segments.push_back(run);
      continue;
    }
    for (NodeId node = run.first; node <= run.last; ++node)
      if (worth_recomputing(graph, node)) segments.push_back({node, node, graph.node(node).name});
  }
  return segments;
}

/// Segments that cut a fusion include all of it, with the node that its last norm is deferred to, but stop before one
/// that computes the loss. Where two cut the same, it belongs to the first, and the second begins after it: both as one
/// would keep less, but need it all at once. Those that then have no nodes left are dropped.
std::vector<NamedSegment> widened(const std::vector<NamedSegment>& segments, std::span<const Fusion> fusions) {
  std::vector<NamedSegment> wide;
  for (NamedSegment segment : segments) {
    if (!wide.empty()) segment.first = std::max(segment.first, wide.back().last + 1);
    if (segment.last < segment.first) continue;
    for (const Fusion& fusion : fusions) {
      const NodeId last = fusion.defers_norm ? fusion.last + 1 : fusion.last;
      if (last < segment.first || segment.last < fusion.first) continue;
      if (fusion.pattern != nullptr && fusion.pattern->makes_loss) {
        segment.last = fusion.first - 1;
        continue;
      }
      segment.first = std::min(segment.first, fusion.first);
      segment.last = std::max(segment.last, last);
    }
    if (segment.first <= segment.last) wide.push_back(segment);  // else nothing but an end that computes the loss
  }
  return wide;
}

/// The operations of a segment, in order; those of `fusions` in place of their layers.
std::vector<NodePlan> operations(const ProgramSegment& segment, std::span<const Fusion>& fusions) {
  std::vector<NodePlan> nodes;
  for (NodeId node = segment.first; node <= segment.last; node = nodes.back().last + 1) {
    const bool fused = !fusions.empty() && fusions.front().first == node;
    nodes.push_back({.first = node, .last = fused ? fusions.front().last : node});
    if (!fused) continue;
    nodes.back().fusion = fusions.front().pattern;
    nodes.back().defers_norm = fusions.front().defers_norm;
    fusions = fusions.subspan(1);
  }
  return nodes;
}

/// Defers norms to their only readers. The last value of a checkpoint segment, and the values that it reads, must be
/// written as they are.
void defer_norms(const Graph& graph, StepProgram& program) {
  const auto recomputed_with = [&](NodeId node) {  // -1: runs once
    const NodePlan& plan = program.plan_of(node);
    return plan.recomputed ? plan.segment : -1;
  };
  for (ProgramSegment& segment : program.segments)
    for (NodePlan& plan : segment.nodes) {
      const NodeId reader = graph.only_reader(plan.last);
      const bool fused = plan.fusion != nullptr || plan.last > plan.first;
      const bool may = fused ? plan.defers_norm
                             : reader != 0 && graph.node(plan.last).layer->traits().may_defer_norm &&
                                   graph.node(reader).layer->traits().applies_deferred_norms;
      plan.defers_norm = may && reader != 0 && recomputed_with(reader) == recomputed_with(plan.last);
    }
}

/// The operation that stands for a layer, to be decided further.
NodePlan& operation_of(StepProgram& program, NodeId node) {
  const NodePlan& found = program.plan_of(node);
  std::vector<NodePlan>& nodes = program.segments[static_cast<std::size_t>(found.segment)].nodes;
  return nodes[static_cast<std::size_t>(&found - nodes.data())];
}

/// Finds the convolutions that contribute the last part of a sum's gradient, and the poolings that are the only readers
/// of a biased convolution with relu.
void mask_gradients(const Graph& graph, StepProgram& program, const FusionTarget& target) {
  for (ProgramSegment& segment : program.segments)
    for (NodePlan& plan : segment.nodes) {
      const NodeId input = graph.node(plan.first).inputs.empty() ? 0 : graph.node(plan.first).inputs[0];
      if (plan.fusion != nullptr || input == 0) continue;
      NodePlan& producer = operation_of(program, input);
      if (producer.last != input) continue;
      const Fusion before{producer.first, producer.last, producer.fusion};
      producer.gradient_is_masked = pool_masks_gradient(graph, plan.first, before, target);
      plan.masks_gradient = producer.gradient_is_masked || masks_gradient(graph, plan.first, before, target);
    }
}

/// Whether an operation that ends a recomputed segment need not write its output. With `all` it does: that is for the
/// least memory, and keeps no masks.
bool may_skip_output(const Graph& graph, const RecomputeOptions& recompute, const NodePlan& plan) {
  const NodeTraits traits = graph.node(plan.last).layer->traits();
  return recompute.kind == RecomputeOptions::Kind::named && (traits.separates_inner_ops || traits.skips_unused_output);
}

std::vector<NamedSegment> segments_of(const Graph& graph, const RecomputeOptions& recompute,
                                      std::span<const Fusion> fusions) {
  using Kind = RecomputeOptions::Kind;
  std::vector<NamedSegment> segments;
  if (recompute.kind == Kind::all) segments = all_segments(graph);
  if (recompute.kind == Kind::named) segments = named_segments(graph, recompute.names);
  return widened(segments, fusions);
}

}  // namespace

StepProgram lower(const Graph& graph, const RecomputeOptions& recompute, std::span<const Fusion> fusions) {
  const std::vector<NamedSegment> recomputed = segments_of(graph, recompute, fusions);
  StepProgram program;
  auto next = recomputed.begin();
  for (NodeId node = 1; node <= graph.output();) {
    ProgramSegment segment{.first = node, .last = node};
    segment.recompute = next != recomputed.end() && next->first == node;
    if (segment.recompute)
      segment.last = (next++)->last;
    else if (!fusions.empty() && fusions.front().first == node)
      segment.last = fusions.front().last;
    segment.inputs = outside_inputs(graph, segment.first, segment.last);
    segment.nodes = operations(segment, fusions);
    for (NodePlan& plan : segment.nodes) {
      plan.segment = static_cast<int>(program.segments.size());
      plan.recomputed = segment.recompute;
      plan.derive = segment.recompute ? recompute.derives_in_recompute() : recompute.derives();
    }
    NodePlan& last = segment.nodes.back();
    last.ends_segment = segment.recompute && may_skip_output(graph, recompute, last);
    node = segment.last + 1;
    program.segments.push_back(std::move(segment));
  }
  defer_norms(graph, program);
  return program;
}

StepProgram lower(const Graph& graph, const RecomputeOptions& recompute, bool fusion, const FusionTarget& target) {
  if (!fusion) return lower(graph, recompute);
  StepProgram program = lower(graph, recompute, find_fusions(graph, target));
  if (target.inference) return program;
  mask_gradients(graph, program, target);
  for (ProgramSegment& segment : program.segments)
    for (NodePlan& plan : segment.nodes)
      if (plan.fusion == nullptr) plan.statistics_for = norm_after_conv(graph, plan.first, target);
  return program;
}

}  // namespace bantam
