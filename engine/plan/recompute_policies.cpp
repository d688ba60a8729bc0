// Units from the graph and a plan, names for stretches, and the shortest path.
#include "bantam/engine/plan/recompute_policies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/graph/lower.h"
#include "bantam/engine/program/step_program.h"

namespace bantam {
namespace {

/// The last node that reads a node's output; itself where nobody does.
NodeId last_reader(const Graph& graph, NodeId node) {
  for (NodeId later = graph.output(); later > node; --later)
    if (std::ranges::count(graph.node(later).inputs, node) > 0) return later;
  return node;
}

/// Whether backward of a later node reads the output: then it is kept, or made again.
bool read_again(const Graph& graph, NodeId node) {
  for (NodeId later = node + 1; later <= graph.output(); ++later) {
    const Layer& layer = *graph.node(later).layer;
    if (std::ranges::count(graph.node(later).inputs, node) > 0 &&
        (!layer.cheap(graph.input_shapes(later)) || layer.uses_batch_statistics()))
      return true;
  }
  return false;
}

/// By node: whether it runs in one op with the node before it, or applies a norm that this op leaves to it.
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

std::string stretch_name(const Graph& graph, NodeId first, NodeId last, bool by_blocks) {
  std::string from = graph.node(first).name, to = graph.node(last).name;
  if (by_blocks) from = block_of(from), to = block_of(to);
  return first == last || from == to ? from : fmt::format("{}..{}", from, to);
}

/// Whether a name means these nodes and no others.
bool means(const Graph& graph, const std::string& name, NodeId first, NodeId last) {
  try {
    std::size_t again = 0;
    bool same = true;
    for (const ProgramSegment& segment : lower(graph, {RecomputeOptions::Kind::named, {name}}).segments) {
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
    unit.seconds += cost.again[at];
    unit.unread_seconds = std::max(0.0, cost.again[at] - cost.last[at]);
    unit.kept_bytes += kept_bytes;
    unit.output_bytes = bytes;
    unit.end_bytes = !read_again(graph, node)                          ? 0
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

std::optional<StretchList> with_stretch(StretchList list, UnitStretch stretch) {
  auto place = list.begin();
  while (place != list.end() && place->last < stretch.first) ++place;
  if (place != list.end() && place->first <= stretch.last) return std::nullopt;
  list.insert(place, stretch);
  return list;
}

StretchEstimates::StretchEstimates(const Graph& graph, const StepCost& cost, std::span<const RecomputeUnit> once,
                                   std::span<const RecomputeUnit> again, double stretch_seconds)
    : once_(once), again_(again), stretch_seconds_(stretch_seconds) {
  for (NodeId node = 1; node <= graph.output(); ++node)
    if (const double seconds = cost.deferral[static_cast<std::size_t>(node)]; seconds > 0)
      deferrals_.push_back({node, graph.only_reader(node), seconds});
}

bool StretchEstimates::valid(UnitStretch stretch) const {
  for (std::size_t unit = stretch.first; unit < stretch.last; ++unit)
    if (once_[unit].read_until > once_[stretch.last].last) return false;
  return true;
}

double StretchEstimates::seconds(UnitStretch stretch) const {
  double seconds = stretch_seconds_ - once_[stretch.last].unread_seconds;
  for (std::size_t unit = stretch.first; unit <= stretch.last; ++unit)
    seconds += once_[unit].seconds + again_[unit].derive_seconds;
  const auto inside = [&](NodeId node) {
    return once_[stretch.first].first <= node && node <= once_[stretch.last].last;
  };
  for (const Deferral& deferral : deferrals_)
    if (inside(deferral.norm) != inside(deferral.reader)) seconds += deferral.seconds;
  return seconds;
}

std::uint64_t StretchEstimates::held_bytes(UnitStretch stretch) const {
  std::uint64_t held = 0, largest = 0;
  for (std::size_t unit = stretch.first; unit <= stretch.last; ++unit) {
    held += again_[unit].kept_bytes;
    largest = std::max(largest, again_[unit].output_bytes);
  }
  const RecomputeUnit& end = again_[stretch.last];
  return held - std::min(end.kept_bytes, end.end_bytes) + 2 * largest;
}

StretchEstimates::Total StretchEstimates::total(const StretchList& stretches) const {
  Total total;
  auto next = stretches.begin();
  for (std::size_t unit = 0; unit < once_.size(); ++unit) {
    if (next == stretches.end() || unit < next->first) {
      total.seconds += once_[unit].derive_seconds;
      total.kept_bytes += once_[unit].kept_bytes;
      continue;
    }
    total.seconds += seconds(*next);
    total.kept_bytes += once_[next->last].end_bytes;
    unit = next->last;
    const UnitStretch done = *next++;
    if (next != stretches.end() && next->first == done.last + 1) total.kept_bytes += handed_on_bytes(done);
  }
  return total;
}

std::vector<StretchList> StretchEstimates::cut_in_two(const StretchList& list, std::size_t i, std::size_t most) const {
  std::vector<StretchList> found;
  const UnitStretch whole = list[i];
  for (std::size_t end = whole.first; end < whole.last; ++end)
    for (std::size_t begin = end + 1; begin <= std::min(end + 1 + most, whole.last); ++begin) {
      if (!valid({whole.first, end}) || !valid({begin, whole.last})) continue;
      StretchList two = list;
      two[i] = {whole.first, end};
      two.insert(two.begin() + static_cast<std::ptrdiff_t>(i) + 1, {begin, whole.last});
      found.push_back(std::move(two));
    }
  return found;
}

StretchTable::StretchTable(const StretchEstimates& estimates, std::uint64_t room) : estimates_(estimates) {
  std::uint64_t all = 0;
  for (std::size_t unit = 0; unit < estimates.units(); ++unit) all += estimates.once(unit).kept_bytes;
  bytes_per_level_ = std::max(1.0, static_cast<double>(all) / kLevels);
  cells_.assign(2 * (estimates.units() + 1) * (kLevels + 1), {std::numeric_limits<double>::infinity()});
  for (std::size_t level = 0; level <= kLevels; ++level) cells_[level].seconds = 0;
  for (std::size_t first = 0; first < estimates.units(); ++first)
    for (const Place from : {Place{first, false}, Place{first, true}}) {
      if (from.open && first == 0) continue;  // nothing in front of the first unit is open
      run_once(from);
      for (std::size_t last = first; last < estimates.units(); ++last)
        if (estimates.valid({first, last})) run_again(from, last, room);
    }
}

void StretchTable::run_once(Place from) {
  const RecomputeUnit& once = estimates_.once(from.units);
  reach({from.units + 1}, once.kept_bytes, kLevels, {.seconds = once.derive_seconds, .from = from});
}

void StretchTable::run_again(Place from, std::size_t last, std::uint64_t room) {
  const UnitStretch stretch{from.units, last};
  const std::uint64_t held = estimates_.held_bytes(stretch), end = estimates_.once(last).end_bytes,
                      handed_on = from.open ? estimates_.handed_on_bytes({0, from.units - 1}) : 0;
  if (held + handed_on > room) return;
  const double before = static_cast<double>(room - held - handed_on) / bytes_per_level_;
  reach({last + 1, end == 0}, end + handed_on, before < kLevels ? static_cast<std::size_t>(before) : kLevels,
        {.seconds = estimates_.seconds(stretch), .from = from, .run_again = true});
}

void StretchTable::reach(Place to, std::uint64_t kept_bytes, std::size_t highest, const Cell& step) {
  const auto levels = static_cast<std::size_t>(std::lround(static_cast<double>(kept_bytes) / bytes_per_level_));
  for (std::size_t level = levels; level <= kLevels; ++level) {
    const std::size_t before = std::min(level - levels, highest);
    const double total = cell(step.from, before).seconds + step.seconds;
    Cell& best = cells_[index(to, level)];
    if (total < best.seconds) best = {total, step.from, before, step.run_again};
  }
}

StretchTable::Place StretchTable::end(std::size_t level) const {
  const Place closed{estimates_.units(), false}, open{estimates_.units(), true};
  return cell(open, level).seconds < cell(closed, level).seconds ? open : closed;
}

StretchList StretchTable::stretches(std::size_t level) const {
  StretchList list;
  for (Place at = end(level); at.units > 0;) {
    const Cell& last = cell(at, level);
    if (last.run_again) list.push_back({last.from.units, at.units - 1});
    at = last.from;
    level = last.level;
  }
  std::ranges::reverse(list);
  return list;
}

}  // namespace bantam
