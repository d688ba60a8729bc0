// Exact plans steer the bounds of the table of estimates, then improve its choice.
#include "bantam/engine/plan/recompute_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/plan/recompute_policies.h"

namespace bantam {
namespace {

constexpr int kRooms =
    10;  // bounds on a segment's bytes: those that the model does not use, then less by kLessRoom each
constexpr double kLessRoom = 0.94;
constexpr int kPlansATable = 8;
constexpr int kLowestRooms = 20, kLowestBounds = 3;  // the same where hardly anything fits
constexpr double kLowestLessRoom = 0.87;
constexpr std::size_t kLowestStep = 8;
constexpr std::size_t kSmall = 16;     // units of a network in which single segments are tried one by one
constexpr double kSegmentCost = 5e-4;  // of a step, for each segment: long lists should be worth it
// Bounds on time that do not depend on the machine, for improving the tables' choice.
constexpr std::int64_t kPlansAnImprovement = 150, kMostPlans = 1000;
constexpr std::size_t kExchanged = 24;  // units of a segment that replaces another
constexpr std::size_t kCut = 4;         // most units left out where a segment is cut in two
constexpr double kEstimated = 0.02;     // of the target: how far estimates of kept bytes may be off
constexpr int kTighterTargets = 16;
constexpr double kCurveStep = 0.9;  // of a curve's budgets, each of the one before
constexpr double kTighter = 0.96;   // a plan may fit by bytes, but not in the arena's chunks: the next target is lower

/// The part of a policy beside its segments: which tensors backward derives, and whether recomputed segments do so too.
struct Level {
  Derive derive = Derive::none;
  bool whole = false;
  RecomputeOptions options() const { return {.derive = derive, .whole = whole}; }
};
constexpr Level kLevels[] = {{}, {Derive::inner}, {Derive::cheap}, {Derive::inner, true}, {Derive::cheap, true}};

struct Policy {
  SegmentList segments;
  Level level;
};

/// A policy's planned peak in bytes and predicted time, from a run of its step on the meta device.
struct Measured {
  RecomputeOptions options = {};
  std::size_t segments = 0;
  std::uint64_t peak = 0;
  double seconds = 0;  // of an update
};

SegmentList without(SegmentList list, std::size_t i) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
  return list;
}

/// The list with each segment that fits between the others.
std::vector<SegmentList> with_one_more(const SegmentEstimates& estimates, const SegmentList& list) {
  std::vector<SegmentList> found;
  for (std::size_t first = 0; first < estimates.units(); ++first)
    for (std::size_t last = first; last < std::min(first + kExchanged, estimates.units()); ++last)
      if (estimates.valid({first, last}))
        if (auto more = with_segment(list, {first, last})) found.push_back(std::move(*more));
  return found;
}

class Search {
 public:
  Search(const Graph& graph, const RecomputeQuestion& question)
      : graph_(graph),
        question_(question),
        cost_(predict_cost(graph, question.step, question.rates)),
        seconds_(measured({}).seconds) {}

  RecomputeChoice run() {
    double target = static_cast<double>(question_.bytes);
    for (int i = 0; i < kTighterTargets; ++i, target *= kTighter) {
      const std::optional<Policy> policy = least_work(static_cast<std::uint64_t>(target));
      if (!policy) break;
      if (truly_fits(options_of(*policy))) return choice(*policy, true);
    }
    const bool fits = smallest_peak_ <= question_.bytes && truly_fits(options_of(smallest_));
    return choice(smallest_, fits);
  }

  std::vector<RecomputePoint> curve() {
    std::vector<std::uint64_t> budgets = {peak({})};
    while (budgets.size() == 1 || least_work(budgets.back()))
      budgets.push_back(static_cast<std::uint64_t>(static_cast<double>(budgets.back()) * kCurveStep));
    std::vector<RecomputePoint> points;
    for (const std::uint64_t budget : budgets) {
      const Measured* best = least_measured(budget);
      if (best != nullptr && (points.empty() || best->peak < points.back().peak_bytes))
        points.push_back({best->options, best->peak, best->seconds, extra(*best)});
    }
    return points;
  }

 private:
  /// The policy with the least extra work whose planned peak is within `target`, of those tried.
  std::optional<Policy> least_work(std::uint64_t target) {
    std::optional<Policy> best;
    for (const Level level : kLevels) {
      if (level.whole) continue;  // of segments only
      if (try_policy({{}, level}, target, best) && level.derive == Derive::none) return best;
    }
    for (const Level level : kLevels) search_single(level, target, best);
    if (best) improve(*best, target);
    for (const Level level : kLevels) {
      std::optional<Policy> other;
      search_segments(level, target, other);
      if (!other) continue;
      improve(*other, target);
      if (!best || cost(*other) < cost(*best)) best = std::move(other);
    }
    if (best) return best;
    for (const Level level : kLevels) search_lowest(level, target, best);
    if (!best) descend(target, best);
    if (best) improve(*best, target);
    return best;
  }

  /// Small networks peak where gradients do, which tables do not see: there every segment is tried alone.
  void search_single(Level level, std::uint64_t target, std::optional<Policy>& best) {
    const SegmentEstimates estimates = estimates_of(level);
    if (estimates.units() > kSmall) return;
    for (std::size_t first = 0; first < estimates.units(); ++first)
      for (std::size_t last = first; last < estimates.units(); ++last)
        if (estimates.valid({first, last})) try_policy({{{first, last}}, level}, target, best);
  }

  void search_segments(Level level, std::uint64_t target, std::optional<Policy>& best) {
    const SegmentEstimates estimates = estimates_of(level);
    if (target <= persistent_bytes_) return;
    double room = static_cast<double>(target - persistent_bytes_);
    for (int i = 0; i < kRooms; ++i, room *= kLessRoom)
      search_bounds(SegmentTable(estimates, static_cast<std::uint64_t>(room)), level, target, best);
  }

  /// Lowers the bound on kept bytes by what plans are above the target, until one is within it.
  void search_bounds(const SegmentTable& table, Level level, std::uint64_t target, std::optional<Policy>& best) {
    double bytes = static_cast<double>(target - persistent_bytes_);
    for (int i = 0; i < kPlansATable; ++i) {
      const std::size_t bound = table.level_of(bytes);
      if (!std::isfinite(table.seconds(bound)) || (best && table.seconds(bound) / cost_.step >= cost(*best))) return;
      const Policy policy{table.segments(bound), level};
      if (try_policy(policy, target, best)) return;
      bytes = std::min(bytes, kept_bytes(policy)) - static_cast<double>(peak(policy) - target);
    }
  }

  /// Where hardly anything fits: the least that can be kept, and little more, with any room for segments.
  void search_lowest(Level level, std::uint64_t target, std::optional<Policy>& best) {
    const SegmentEstimates estimates = estimates_of(level);
    double room = static_cast<double>(estimates.total({}).kept_bytes);
    for (int i = 0; i < kLowestRooms; ++i, room *= kLowestLessRoom) {
      const SegmentTable table(estimates, static_cast<std::uint64_t>(room));
      std::size_t bound = 0;
      while (bound <= SegmentTable::kLevels && !std::isfinite(table.seconds(bound))) ++bound;
      for (int more = 0; more < kLowestBounds && bound <= SegmentTable::kLevels; ++more, bound += kLowestStep)
        try_policy({table.segments(bound), level}, target, best);
    }
  }

  /// From the lowest peak there was: one segment more, or in the place of others, and with another level, as long as
  /// that is lower.
  void descend(std::uint64_t target, std::optional<Policy>& best) {
    most_plans_ = std::min(plans_ + kPlansAnImprovement, kMostPlans);
    while (smallest_peak_ > target && lower_peak()) {
    }
    if (smallest_peak_ <= target) best = smallest_;
  }
  bool lower_peak() {
    const std::uint64_t before = smallest_peak_;
    std::vector<SegmentList> bases = {smallest_.segments};
    for (std::size_t i = 0; i < smallest_.segments.size(); ++i) bases.push_back(without(smallest_.segments, i));
    for (const SegmentList& base : bases)
      for (const Level level : kLevels) {
        const SegmentEstimates estimates = estimates_of(level);
        for (SegmentList& list : with_one_more(estimates, base)) {
          if (plans_ >= most_plans_) return false;
          if (peak({std::move(list), level}) < before) return true;
        }
      }
    return false;
  }

  /// By estimate.
  double kept_bytes(const Policy& policy) {
    return static_cast<double>(estimates_of(policy.level).total(policy.segments).kept_bytes);
  }

  /// Drops segments, makes them shorter and exchanges them for others, the largest gain first, as long as the
  /// plan stays within the target.
  void improve(Policy& best, std::uint64_t target) {
    most_plans_ = std::min(plans_ + kPlansAnImprovement, kMostPlans);
    for (bool better = true; better && plans_ < most_plans_;) {
      better = false;
      for (auto& [list, level] : neighbours(best, target)) {
        if (plans_ >= most_plans_) break;
        Policy policy{std::move(list), level};
        if (peak(policy) > target || cost(policy) >= cost(best)) continue;
        best = std::move(policy);
        better = true;
        break;
      }
    }
  }

  struct Neighbour {
    SegmentList segments;
    Level level;
  };

  /// Those that differ by one segment, by one cut in two, or by the level, and need less work by estimate, the least
  /// first; without those that keep more than `target` allows.
  std::vector<Neighbour> neighbours(const Policy& policy, std::uint64_t target) {
    const SegmentEstimates::Total now = estimates_of(policy.level).total(policy.segments);
    const double most_kept = static_cast<double>(now.kept_bytes) + static_cast<double>(target) * (1 + kEstimated) -
                             static_cast<double>(peak(policy));
    std::vector<std::pair<double, Neighbour>> found;
    const auto add = [&](const SegmentEstimates& estimates, SegmentList list, Level level) {
      const SegmentEstimates::Total total = estimates.total(list);
      if (total.seconds < now.seconds && static_cast<double>(total.kept_bytes) <= most_kept)
        found.emplace_back(total.seconds, Neighbour{std::move(list), level});
    };
    const SegmentEstimates estimates = estimates_of(policy.level);
    for (std::size_t i = 0; i < policy.segments.size(); ++i) {
      const SegmentList others = without(policy.segments, i);
      add(estimates, others, policy.level);
      for (SegmentList& list : with_one_more(estimates, others)) add(estimates, std::move(list), policy.level);
      for (SegmentList& list : estimates.cut_in_two(policy.segments, i, kCut))
        add(estimates, std::move(list), policy.level);
    }
    for (const Level level : kLevels) add(estimates_of(level), policy.segments, level);
    std::ranges::stable_sort(found, {}, &std::pair<double, Neighbour>::first);
    std::vector<Neighbour> sorted;
    for (auto& [seconds, neighbour] : found) sorted.push_back(std::move(neighbour));
    return sorted;
  }

  bool try_policy(Policy policy, std::uint64_t target, std::optional<Policy>& best) {
    if (peak(policy) > target) return false;
    if (!best || cost(policy) < cost(*best)) best = std::move(policy);
    return true;
  }

  /// Peak and time, found once a policy.
  const Measured& measured(const Policy& policy) {
    const RecomputeOptions options = options_of(policy);
    const auto [place, is_new] = measured_.try_emplace(key(options));
    Measured& found = place->second;
    if (!is_new) return found;
    StepPlanOptions step = question_.step;
    step.model.recompute = options;
    found.options = options;
    found.segments = policy.segments.size();
    found.peak = step_peak(
        graph_, step, [&](const kernels::KernelLog& log) { found.seconds = predict_seconds(log, question_.rates); });
    ++plans_;
    if (found.peak < smallest_peak_) smallest_peak_ = found.peak, smallest_ = policy;
    return found;
  }
  std::uint64_t peak(const Policy& policy) { return measured(policy).peak; }
  double extra(const Measured& of) const { return seconds_ > 0 ? of.seconds / seconds_ - 1 : 0; }
  /// Ranks policies, the least being best: the extra time as a share of a step, plus a small charge for each segment.
  double cost(const Measured& of) const { return extra(of) + kSegmentCost * static_cast<double>(of.segments); }
  double cost(const Policy& policy) { return cost(measured(policy)); }

  /// The best of all policies that were planned so far, whose peak is within `bytes`; null: none is.
  const Measured* least_measured(std::uint64_t bytes) const {
    const Measured* best = nullptr;
    for (const auto& [key, found] : measured_)
      if (found.peak <= bytes && (best == nullptr || cost(found) < cost(*best))) best = &found;
    return best;
  }

  bool truly_fits(const RecomputeOptions& options) {
    if (question_.fits) return question_.fits(options);
    StepPlanOptions step = question_.step;
    step.model.recompute = options;
    return step_fits(graph_, step, question_.bytes);
  }

  RecomputeOptions options_of(const Policy& policy) {
    return name_segments(graph_, units_of(Derive::none), policy.segments, policy.level.options());
  }
  static std::string key(const RecomputeOptions& options) {
    return fmt::format("{}{}{}", static_cast<int>(options.derive), options.whole ? "+" : "",
                       join(options.names, "+", "+"));
  }

  /// The graph's units, with what is kept of them where so much is derived.
  const std::vector<RecomputeUnit>& units_of(Derive derive) {
    std::vector<RecomputeUnit>& units = units_[static_cast<std::size_t>(derive)];
    if (!units.empty()) return units;
    StepPlanOptions step = question_.step;
    step.accumulate = 1;
    step.model.recompute = {.derive = derive};
    step.planner.iterations = 0;
    ++plans_;
    const StepPlan plan = plan_step(graph_, step);
    if (derive != Derive::none) {
      units = units_of(Derive::none);
      count_kept(graph_, plan, rebuild_seconds(graph_, step, derive, question_.rates), units);
    } else {
      units = recompute_units(graph_, step, plan, cost_);
      persistent_bytes_ = plan.persistent_bytes;
    }
    return units;
  }

  SegmentEstimates estimates_of(Level level) {
    (void)units_of(Derive::none);
    return {graph_, cost_, units_of(level.derive), units_of(level.whole ? Derive::none : level.derive),
            kSegmentCost * cost_.step};
  }

  RecomputeChoice choice(const Policy& policy, bool fits) {
    return {fits, options_of(policy), peak(policy), extra(measured(policy)), plans_};
  }

  const Graph& graph_;
  const RecomputeQuestion& question_;
  StepCost cost_;
  std::vector<RecomputeUnit> units_[3];
  std::uint64_t persistent_bytes_ = 0;  // of the model and what trains it
  std::map<std::string, Measured> measured_;
  std::uint64_t smallest_peak_ = std::numeric_limits<std::uint64_t>::max();
  Policy smallest_;
  std::int64_t plans_ = 0, most_plans_ = 0;
  double seconds_ = 0;  // of an update with nothing recomputed
};

}  // namespace

RecomputeChoice search_recompute(const Graph& graph, const RecomputeQuestion& question) {
  if (question.bytes == 0) throw Error("search_recompute: a number of bytes above 0 is needed");
  return Search(graph, question).run();
}

std::vector<RecomputePoint> recompute_curve(const Graph& graph, const RecomputeQuestion& question) {
  return Search(graph, question).curve();
}

}  // namespace bantam
