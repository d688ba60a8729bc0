// Units from the graph and a plan, names for segments, and the shortest path.
#include "bantam/engine/plan/recompute_policies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/program/step_program.h"

namespace bantam {
namespace {

/// The last node that reads a node's output; itself where nobody does.
NodeId last_reader(const Graph& graph, NodeId node) {
  for (NodeId later = graph.output(); later > node; --later)
    if (std::ranges::count(graph.node(later).inputs, node) > 0) return later;
  return node;
}

/// Whether backward of a later node reads the output: then it is kept, or recomputed.
bool read_in_backward(const Graph& graph, NodeId node) {
  for (NodeId later = node + 1; later <= graph.output(); ++later) {
    const Layer& layer = *graph.node(later).layer;
    if (std::ranges::count(graph.node(later).inputs, node) > 0 &&
        (!layer.cheap(graph.input_shapes(later)) || layer.uses_batch_statistics()))
      return true;
  }
  return false;
}

/// By node: whether it runs in one op with the node before it, or applies the deferred norm of that op.
std::vector<bool> nodes_of_fusions(const Graph& graph, const StepPlanOptions& step) {
  std::vector<bool> joined(graph.nodes().size(), false);
  if (!step.model.fusion) return joined;
  const FusionTarget target{.compute = step.model.precision.compute(), .device = step.device.kind};
  for (const ProgramSegment& segment : lower(graph, {}, true, target).segments)
    for (const NodePlan& plan : segment.nodes)
      for (NodeId node = plan.first + 1; node <= plan.last + (plan.fusion != nullptr && plan.defers_norm ? 1 : 0);
           ++node)
        joined[static_cast<std::size_t>(node)] = true;
  return joined;
}

std::string segment_name(const Graph& graph, NodeId first, NodeId last, bool by_blocks) {
  std::string from = graph.node(first).name, to = graph.node(last).name;
  if (by_blocks) from = block_of(from), to = block_of(to);
  return first == last || from == to ? from : fmt::format("{}..{}", from, to);
}

/// Whether a name means these nodes and no others.
bool means(const Graph& graph, const std::string& name, NodeId first, NodeId last) {
  try {
    std::size_t recomputed = 0;
    bool same = true;
    for (const ProgramSegment& segment : lower(graph, {RecomputeOptions::Kind::named, {name}}).segments) {
      if (!segment.recompute) continue;
      ++recomputed;
      same = same && segment.first == first && segment.last == last;
    }
    return same && recomputed == 1;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::vector<RecomputeUnit> recompute_units(const Graph& graph, const StepPlanOptions& step, const StepPlan& plan,
                                           const StepCost& cost) {
  const auto value_bytes = step.batch * static_cast<std::int64_t>(size_of(step.model.precision.compute()));
  const std::vector<bool> fused = nodes_of_fusions(graph, step);
  std::map<std::string, std::uint64_t> kept = kept_bytes(plan);
  std::vector<RecomputeUnit> units;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const GraphNode& description = graph.node(node);
    const auto at = static_cast<std::size_t>(node);
    const std::uint64_t kept_bytes = kept[description.name],
                        bytes = static_cast<std::uint64_t>(description.output.elements() * value_bytes);
    const bool in_place = !units.empty() && 2 * kept_bytes < bytes && units.back().read_until == node;
    if (!in_place && !fused[at]) units.push_back({.first = node});
    RecomputeUnit& unit = units.back();
    unit.last = node;
    unit.read_until = last_reader(graph, node);
    unit.seconds += cost.recomputed[at];
    unit.unused_output_seconds = std::max(0.0, cost.recomputed[at] - cost.last[at]);
    unit.kept_bytes += kept_bytes;
    unit.output_bytes = bytes;
    unit.end_bytes = !read_in_backward(graph, node)                    ? 0
                     : description.layer->traits().skips_unused_output ? std::max(bytes, kept_bytes)
                                                                       : bytes;
  }
  return units;
}

void count_kept(const Graph& graph, const StepPlan& plan, std::span<const double> seconds,
                std::span<RecomputeUnit> units) {
  std::map<std::string, std::uint64_t> kept = kept_bytes(plan);
  for (RecomputeUnit& unit : units) {
    unit.kept_bytes = 0;
    unit.derive_seconds = 0;
    for (NodeId node = unit.first; node <= unit.last; ++node) {
      unit.kept_bytes += kept[graph.node(node).name];
      unit.derive_seconds += seconds[static_cast<std::size_t>(node)];
    }
  }
}

RecomputeOptions name_segments(const Graph& graph, std::span<const RecomputeUnit> units, const SegmentList& segments,
                               RecomputeOptions options) {
  for (const CheckpointSegment& segment : segments) {
    const NodeId first = units[segment.first].first, last = units[segment.last].last;
    const std::string blocks = segment_name(graph, first, last, true);
    options.names.push_back(means(graph, blocks, first, last) ? blocks : segment_name(graph, first, last, false));
  }
  if (!segments.empty()) options.kind = RecomputeOptions::Kind::named;
  return options;
}

std::optional<SegmentList> with_segment(SegmentList list, CheckpointSegment segment) {
  auto place = list.begin();
  while (place != list.end() && place->last < segment.first) ++place;
  if (place != list.end() && place->first <= segment.last) return std::nullopt;
  list.insert(place, segment);
  return list;
}

SegmentEstimates::SegmentEstimates(const Graph& graph, const StepCost& cost, std::span<const RecomputeUnit> once,
                                   std::span<const RecomputeUnit> recomputed, double segment_seconds)
    : once_(once), recomputed_(recomputed), segment_seconds_(segment_seconds) {
  for (NodeId node = 1; node <= graph.output(); ++node)
    if (const double seconds = cost.deferral[static_cast<std::size_t>(node)]; seconds > 0)
      deferrals_.push_back({node, graph.only_reader(node), seconds});
}

bool SegmentEstimates::valid(CheckpointSegment segment) const {
  for (std::size_t unit = segment.first; unit < segment.last; ++unit)
    if (once_[unit].read_until > once_[segment.last].last) return false;
  return true;
}

double SegmentEstimates::seconds(CheckpointSegment segment) const {
  double seconds = segment_seconds_ - once_[segment.last].unused_output_seconds;
  for (std::size_t unit = segment.first; unit <= segment.last; ++unit)
    seconds += once_[unit].seconds + recomputed_[unit].derive_seconds;
  const auto inside = [&](NodeId node) {
    return once_[segment.first].first <= node && node <= once_[segment.last].last;
  };
  for (const Deferral& deferral : deferrals_)
    if (inside(deferral.norm) != inside(deferral.reader)) seconds += deferral.seconds;
  return seconds;
}

std::uint64_t SegmentEstimates::recompute_bytes(CheckpointSegment segment) const {
  std::uint64_t bytes = 0, largest = 0;
  for (std::size_t unit = segment.first; unit <= segment.last; ++unit) {
    bytes += recomputed_[unit].kept_bytes;
    largest = std::max(largest, recomputed_[unit].output_bytes);
  }
  const RecomputeUnit& end = recomputed_[segment.last];
  return bytes - std::min(end.kept_bytes, end.end_bytes) + 2 * largest;
}

SegmentEstimates::Total SegmentEstimates::total(const SegmentList& segments) const {
  Total total;
  auto next = segments.begin();
  for (std::size_t unit = 0; unit < once_.size(); ++unit) {
    if (next == segments.end() || unit < next->first) {
      total.seconds += once_[unit].derive_seconds;
      total.kept_bytes += once_[unit].kept_bytes;
      continue;
    }
    total.seconds += seconds(*next);
    total.kept_bytes += once_[next->last].end_bytes;
    unit = next->last;
    const CheckpointSegment done = *next++;
    if (next != segments.end() && next->first == done.last + 1) total.kept_bytes += passed_on_bytes(done);
  }
  return total;
}

std::vector<SegmentList> SegmentEstimates::cut_in_two(const SegmentList& list, std::size_t i, std::size_t most) const {
  std::vector<SegmentList> found;
  const CheckpointSegment whole = list[i];
  for (std::size_t end = whole.first; end < whole.last; ++end)
    for (std::size_t begin = end + 1; begin <= std::min(end + 1 + most, whole.last); ++begin) {
      if (!valid({whole.first, end}) || !valid({begin, whole.last})) continue;
      SegmentList two = list;
      two[i] = {whole.first, end};
      two.insert(two.begin() + static_cast<std::ptrdiff_t>(i) + 1, {begin, whole.last});
      found.push_back(std::move(two));
    }
  return found;
}

SegmentTable::SegmentTable(const SegmentEstimates& estimates, std::uint64_t room) : estimates_(estimates) {
  std::uint64_t all = 0;
  for (std::size_t unit = 0; unit < estimates.units(); ++unit) all += estimates.once(unit).kept_bytes;
  bytes_per_level_ = std::max(1.0, static_cast<double>(all) / kLevels);
  cells_.assign(2 * (estimates.units() + 1) * (kLevels + 1), {std::numeric_limits<double>::infinity()});
  for (std::size_t level = 0; level <= kLevels; ++level) cells_[level].seconds = 0;
  for (std::size_t first = 0; first < estimates.units(); ++first)
    for (const Place from : {Place{first, false}, Place{first, true}}) {
      if (from.open && first == 0) continue;  // nothing before the first unit is open
      run_once(from);
      for (std::size_t last = first; last < estimates.units(); ++last)
        if (estimates.valid({first, last})) recompute(from, last, room);
    }
}

void SegmentTable::run_once(Place from) {
  const RecomputeUnit& once = estimates_.once(from.units);
  reach({from.units + 1}, once.kept_bytes, kLevels, {.seconds = once.derive_seconds, .from = from});
}

void SegmentTable::recompute(Place from, std::size_t last, std::uint64_t room) {
  const CheckpointSegment segment{from.units, last};
  const std::uint64_t alive = estimates_.recompute_bytes(segment), end = estimates_.once(last).end_bytes,
                      passed_on = from.open ? estimates_.passed_on_bytes({0, from.units - 1}) : 0;
  if (alive + passed_on > room) return;
  const double before = static_cast<double>(room - alive - passed_on) / bytes_per_level_;
  reach({last + 1, end == 0}, end + passed_on, before < kLevels ? static_cast<std::size_t>(before) : kLevels,
        {.seconds = estimates_.seconds(segment), .from = from, .recompute = true});
}

void SegmentTable::reach(Place to, std::uint64_t kept_bytes, std::size_t highest, const Cell& step) {
  const auto levels = static_cast<std::size_t>(std::lround(static_cast<double>(kept_bytes) / bytes_per_level_));
  for (std::size_t level = levels; level <= kLevels; ++level) {
    const std::size_t before = std::min(level - levels, highest);
    const double total = cell(step.from, before).seconds + step.seconds;
    Cell& best = cells_[index(to, level)];
    if (total < best.seconds) best = {total, step.from, before, step.recompute};
  }
}

SegmentTable::Place SegmentTable::end(std::size_t level) const {
  const Place closed{estimates_.units(), false}, open{estimates_.units(), true};
  return cell(open, level).seconds < cell(closed, level).seconds ? open : closed;
}

SegmentList SegmentTable::segments(std::size_t level) const {
  SegmentList list;
  for (Place at = end(level); at.units > 0;) {
    const Cell& last = cell(at, level);
    if (last.recompute) list.push_back({last.from.units, at.units - 1});
    at = last.from;
    level = last.level;
  }
  std::ranges::reverse(list);
  return list;
}

}  // namespace bantam
