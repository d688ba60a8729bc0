// Units from the graph and a plan, names for stretches, and the shortest path.
#include "bantam/engine/recompute_policies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

const GraphNode& node_of(const Graph& graph, NodeId node) { return graph.nodes()[static_cast<std::size_t>(node)]; }

/// Nodes behind which one value crosses: nobody later reads an earlier one.
std::vector<NodeId> cut_points(const Graph& graph) {
  std::vector<NodeId> cuts;
  NodeId earliest = graph.output();  // read by the nodes behind `node`
  for (NodeId node = graph.output(); node >= 1; --node) {
    if (earliest >= node) cuts.push_back(node);
    for (const NodeId input : node_of(graph, node).inputs) earliest = std::min(earliest, input);
  }
  std::ranges::reverse(cuts);
  return cuts;
}

/// Bytes that live from forward into backward, by layer.
std::map<std::string, std::uint64_t> kept_by_owner(const StepPlan& plan) {
  std::int64_t forward_end = std::numeric_limits<std::int64_t>::max();
  for (const StepBuffer& buffer : plan.step)
    if (buffer.phase == "backward") forward_end = std::min(forward_end, buffer.buffer.lower);
  std::map<std::string, std::uint64_t> kept;
  for (const StepBuffer& buffer : plan.step)
    if (buffer.phase == "forward" && buffer.buffer.lower < forward_end && buffer.buffer.upper > forward_end)
      kept[buffer.owner] += buffer.buffer.size;
  return kept;
}

std::string block_of(const std::string& name) { return name.substr(0, name.find('/')); }

std::string stretch_name(const Graph& graph, NodeId first, NodeId last, bool by_blocks) {
  std::string from = node_of(graph, first).name, to = node_of(graph, last).name;
  if (by_blocks) from = block_of(from), to = block_of(to);
  return first == last || from == to ? from : fmt::format("{}..{}", from, to);
}

/// Whether a name means these nodes and no others.
bool means(const Graph& graph, const std::string& name, NodeId first, NodeId last) {
  try {
    std::size_t again = 0;
    bool same = true;
    for (const LoweredSegment& segment : lower(graph, {RecomputeOptions::Kind::named, {name}})) {
      if (!segment.recompute) continue;
      ++again;
      same = same && segment.first == first && segment.last == last;
    }
    return same && again == 1;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::vector<RecomputeUnit> recompute_units(const Graph& graph, const StepPlan& plan, const StepCost& cost,
                                           std::int64_t value_bytes) {
  std::vector<RecomputeUnit> units;
  NodeId first = 1;
  for (const NodeId last : cut_points(graph)) {
    RecomputeUnit unit{.first = first, .last = last};
    for (NodeId node = first; node <= last; ++node) unit.seconds += cost.again[static_cast<std::size_t>(node)];
    unit.output_bytes = static_cast<std::uint64_t>(node_of(graph, last).output.elements() * value_bytes);
    units.push_back(unit);
    first = last + 1;
  }
  count_kept(graph, plan, units);
  std::vector<RecomputeUnit> merged;
  for (const RecomputeUnit& unit : units) {
    if (merged.empty() || 2 * unit.kept_bytes >= unit.output_bytes) {
      merged.push_back(unit);
      continue;
    }
    RecomputeUnit& whole = merged.back();  // it works in that one's memory: what parts them costs a copy
    whole.last = unit.last;
    whole.seconds += unit.seconds;
    whole.kept_bytes += unit.kept_bytes;
    whole.output_bytes = unit.output_bytes;
  }
  return merged;
}

void count_kept(const Graph& graph, const StepPlan& plan, std::span<RecomputeUnit> units) {
  const std::map<std::string, std::uint64_t> kept = kept_by_owner(plan);
  for (RecomputeUnit& unit : units) {
    unit.kept_bytes = 0;
    for (NodeId node = unit.first; node <= unit.last; ++node)
      if (const auto found = kept.find(node_of(graph, node).name); found != kept.end())
        unit.kept_bytes += found->second;
  }
}

RecomputeOptions name_stretches(const Graph& graph, std::span<const RecomputeUnit> units, const StretchList& stretches,
                                RecomputeOptions options) {
  for (const UnitStretch& stretch : stretches) {
    const NodeId first = units[stretch.first].first, last = units[stretch.last].last;
    const std::string blocks = stretch_name(graph, first, last, true);
    options.names.push_back(means(graph, blocks, first, last) ? blocks : stretch_name(graph, first, last, false));
  }
  if (!stretches.empty()) options.kind = RecomputeOptions::Kind::named;
  return options;
}

StretchTable::StretchTable(std::span<const RecomputeUnit> units, std::uint64_t stretch_bytes) : units_(units) {
  std::uint64_t all = 0;
  for (const RecomputeUnit& unit : units_) all += unit.kept_bytes;
  bytes_per_level_ = std::max(1.0, static_cast<double>(all) / kLevels);
  cells_.assign((units_.size() + 1) * (kLevels + 1), {std::numeric_limits<double>::infinity()});
  for (std::size_t level = 0; level <= kLevels; ++level) cells_[level].seconds = 0;
  for (std::size_t first = 0; first < units_.size(); ++first) {
    reach(first, first + 1, units_[first].kept_bytes, 0, false);
    std::uint64_t held = 0;
    double seconds = 0;
    for (std::size_t last = first; last < units_.size(); ++last) {
      held += units_[last].kept_bytes;
      seconds += units_[last].seconds;
      if (held > stretch_bytes) break;
      reach(first, last + 1, units_[last].output_bytes, seconds, true);
    }
  }
}

/// Takes the step [from, to) to every level, where it is the quickest way there.
void StretchTable::reach(std::size_t from, std::size_t to, std::uint64_t kept_bytes, double seconds, bool run_again) {
  const auto levels = static_cast<std::size_t>(std::lround(static_cast<double>(kept_bytes) / bytes_per_level_));
  for (std::size_t level = levels; level <= kLevels; ++level) {
    const double total = best(from, level - levels).seconds + seconds;
    Cell& cell = cells_[to * (kLevels + 1) + level];
    if (total < cell.seconds) cell = {total, from, level - levels, run_again};
  }
}

StretchList StretchTable::stretches(std::size_t level) const {
  StretchList list;
  for (std::size_t units = units_.size(); units > 0;) {
    const Cell& cell = best(units, level);
    if (cell.run_again) list.push_back({cell.from, units - 1});
    units = cell.from;
    level = cell.level;
  }
  std::ranges::reverse(list);
  return list;
}

}  // namespace bantam
