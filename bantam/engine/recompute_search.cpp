// Exact plans steer the bounds of the estimating table, and then shorten what it gave.
#include "bantam/engine/recompute_search.h"

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
#include "bantam/engine/recompute_policies.h"

namespace bantam {
namespace {

constexpr int kStretchBounds = 16;  // from the largest unit to the whole graph, geometrically
// Bounds on time that do not depend on the machine, for improving what the tables gave.
constexpr std::int64_t kPlansAnImprovement = 150, kMostPlans = 1000;
constexpr std::size_t kExchanged = 4;  // units of a stretch that takes another's place
constexpr int kTighterTargets = 16;
constexpr double kTighter = 0.96;  // what fits by bytes may not by pieces: the next target is lower

/// What is derived, and where: a policy without its stretches.
struct Level {
  Derive derive = Derive::none;
  bool whole = false;
  RecomputeOptions options() const { return {.derive = derive, .whole = whole}; }
};
constexpr Level kLevels[] = {{}, {Derive::inner}, {Derive::cheap}, {Derive::inner, true}, {Derive::cheap, true}};

struct Policy {
  StretchList stretches;
  Level level;
  double extra = std::numeric_limits<double>::infinity();
};

class Search {
 public:
  Search(const Graph& graph, const RecomputeQuestion& question)
      : graph_(graph),
        question_(question),
        cost_(predict_cost(graph, question.step.batch, question.step.model.precision, question.rates)) {}

  RecomputeChoice run() {
    double target = static_cast<double>(question_.bytes);
    for (int i = 0; i < kTighterTargets; ++i, target *= kTighter) {
      const std::optional<Policy> policy = least_work(static_cast<std::uint64_t>(target));
      if (!policy) break;
      if (truly_fits(options_of(*policy))) return choice(*policy, true);
    }
    return choice(smallest_, false);
  }

 private:
  /// The policy with the least extra work whose planned peak is within `target`, of those tried.
  std::optional<Policy> least_work(std::uint64_t target) {
    std::optional<Policy> best;
    for (const Level level : kLevels) {
      if (level.whole) continue;  // of stretches only
      try_policy(priced({}, level), target, best);
      if (best && best->extra == 0) return best;
    }
    for (const Level level : kLevels) search_stretches(level, target, best);
    if (!best) return best;
    improve(*best, target);
    for (const Level level : kLevels) {  // a level's best, behind others now, may pass them as it is improved
      std::optional<Policy> other;
      search_stretches(level, target, other);
      if (!other) continue;
      improve(*other, target);
      if (other->extra < best->extra) best = std::move(other);
    }
    return best;
  }

  void search_stretches(Level level, std::uint64_t target, std::optional<Policy>& best) {
    const std::vector<RecomputeUnit>& units = units_of(level.derive);
    std::uint64_t largest = 1, all = 1;
    for (const RecomputeUnit& unit : units) {
      largest = std::max(largest, unit.kept_bytes);
      all += unit.kept_bytes;
    }
    const double ratio = std::pow(static_cast<double>(all) / static_cast<double>(largest), 1.0 / (kStretchBounds - 1));
    double bound = static_cast<double>(largest);
    for (int i = 0; i < kStretchBounds; ++i, bound *= ratio)
      search_bounds(StretchTable(units, static_cast<std::uint64_t>(bound)), level, target, best);
  }

  /// The highest of the table's bounds whose plan is within the target; those no better than the best are left out.
  void search_bounds(const StretchTable& table, Level level, std::uint64_t target, std::optional<Policy>& best) {
    const auto policy_at = [&](std::size_t bound) { return priced(table.stretches(bound), level); };
    std::size_t low = 0, high = StretchTable::kLevels + 1;
    while (low < high && !std::isfinite(table.seconds(low))) ++low;
    while (best && low < high && table.seconds(low) / cost_.step >= best->extra) ++low;
    if (low >= high || !try_policy(policy_at(low), target, best)) return;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (try_policy(policy_at(middle), target, best) ? low : high) = middle;
    }
  }

  /// Leaves stretches out, makes them shorter and exchanges them for others, the largest gain first, as long as the
  /// plan stays within the target.
  void improve(Policy& best, std::uint64_t target) {
    most_plans_ = std::min(plans_ + kPlansAnImprovement, kMostPlans);
    for (bool better = true; better && plans_ < most_plans_;) {
      better = false;
      for (Policy& policy : neighbours(best)) {
        if (plans_ >= most_plans_ || peak(policy) > target) continue;
        best = std::move(policy);
        better = true;
        break;
      }
    }
  }

  /// Policies of less work than `policy` by one change, those of the least work first.
  std::vector<Policy> neighbours(const Policy& policy) {
    std::vector<Policy> found;
    const auto add = [&](StretchList list, Level level) {
      Policy next = priced(std::move(list), level);
      if (next.extra < policy.extra) found.push_back(std::move(next));
    };
    for (std::size_t i = 0; i < policy.stretches.size(); ++i) {
      StretchList without = policy.stretches, later = without, sooner = without;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      add(without, policy.level);
      for (std::size_t first = 0; first < units_of(Derive::none).size(); ++first)
        for (std::size_t last = first; last < std::min(first + kExchanged, units_of(Derive::none).size()); ++last)
          if (auto exchanged = with_stretch(without, {first, last})) add(std::move(*exchanged), policy.level);
      if (policy.stretches[i].first == policy.stretches[i].last) continue;
      ++later[i].first;
      --sooner[i].last;
      add(later, policy.level);
      add(sooner, policy.level);
    }
    for (const Level level : kLevels) add(policy.stretches, level);
    std::ranges::stable_sort(found, {}, &Policy::extra);
    return found;
  }

  /// The list with one more stretch, in order; nothing where it would overlap another.
  static std::optional<StretchList> with_stretch(StretchList list, UnitStretch stretch) {
    auto place = list.begin();
    while (place != list.end() && place->last < stretch.first) ++place;
    if (place != list.end() && place->first <= stretch.last) return std::nullopt;
    list.insert(place, stretch);
    return list;
  }

  bool try_policy(Policy policy, std::uint64_t target, std::optional<Policy>& best) {
    if (peak(policy) > target) return false;
    if (!best || policy.extra < best->extra) best = std::move(policy);
    return true;
  }

  /// Peak by plan, planned once a policy.
  std::uint64_t peak(const Policy& policy) {
    const RecomputeOptions options = options_of(policy);
    const auto [place, is_new] = peaks_.try_emplace(key(options), 0);
    if (!is_new) return place->second;
    StepPlanOptions step = question_.step;
    step.model.recompute = options;
    place->second = step_peak(graph_, step);
    ++plans_;
    if (place->second < smallest_peak_) smallest_peak_ = place->second, smallest_ = policy;
    return place->second;
  }

  bool truly_fits(const RecomputeOptions& options) {
    if (question_.fits) return question_.fits(options);
    StepPlanOptions step = question_.step;
    step.model.recompute = options;
    return step_fits(graph_, step, question_.bytes);
  }

  Policy priced(StretchList stretches, Level level) {
    Policy policy{std::move(stretches), level};
    policy.extra = extra_work(graph_, options_of(policy), cost_);
    return policy;
  }

  RecomputeOptions options_of(const Policy& policy) {
    return name_stretches(graph_, units_of(Derive::none), policy.stretches, policy.level.options());
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
      count_kept(graph_, plan, units);
    } else {
      const auto value_bytes = static_cast<std::int64_t>(size_of(step.model.precision.compute()));
      units = recompute_units(graph_, plan, cost_, value_bytes);
    }
    return units;
  }

  RecomputeChoice choice(const Policy& policy, bool fits) {
    return {fits, options_of(policy), peak(policy), policy.extra, plans_};
  }

  const Graph& graph_;
  const RecomputeQuestion& question_;
  StepCost cost_;
  std::vector<RecomputeUnit> units_[3];
  std::map<std::string, std::uint64_t> peaks_;
  std::uint64_t smallest_peak_ = std::numeric_limits<std::uint64_t>::max();
  Policy smallest_;
  std::int64_t plans_ = 0, most_plans_ = 0;
};

}  // namespace

RecomputeChoice search_recompute(const Graph& graph, const RecomputeQuestion& question) {
  if (question.bytes == 0) throw Error("search_recompute: a number of bytes above 0 is needed");
  return Search(graph, question).run();
}

}  // namespace bantam
