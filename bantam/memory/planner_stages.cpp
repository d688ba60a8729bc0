// The stages of the search: boxes that leave little choice, then the skyline, then ejection, of boxes and of buffers.
#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <utility>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/planner_boxes.h"
#include "bantam/memory/planner_ejection.h"
#include "bantam/memory/planner_search.h"

namespace bantam::planner {
namespace {

/// Where in the budget a stage ends; of the boxes' searches each begins with the skyline.
constexpr double kBoxes = 0.85, kSkyline = 0.87, kOpening = 0.2;

constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15;  // between workers

/// The room that joins may waste, over the most bytes alive, and which sizes are alike: generous rules leave few boxes,
/// strict ones low arenas.
struct Generosity {
  double room, alike;
};
constexpr Generosity kGenerosities[] = {{1.06, 0.1}, {1.03, 0.05}, {1.01, 0.1}, {1.0, 0.05}};

/// Boxes made by one of the rules, and their best placement.
struct BoxSet {
  BoxJoiner joiner;
  Problem boxes;
  Placement placement;
};

/// Constructs placements of all sets of boxes, which is often enough. Stops when the goal is reached.
std::vector<BoxSet> construct_boxes(const Problem& problem, Budget& budget, Placement& best) {
  std::vector<BoxSet> sets;
  if (!BoxJoiner::suits(problem)) return sets;
  Placement unpacked;
  for (const auto& [room, alike] : kGenerosities) {
    if (best.height <= budget.goal || budget.spent()) break;
    BoxSet set{.joiner = BoxJoiner(problem), .boxes = {}, .placement = {}};
    const auto most_live = static_cast<std::uint64_t>(room * static_cast<double>(problem.max_live));
    set.boxes = set.joiner.join({.most_waste = 0.1, .alike = alike, .most_live = most_live});
    const auto same = [&](const BoxSet& other) {
      return other.boxes.lower == set.boxes.lower && other.boxes.size == set.boxes.size;
    };
    if (std::ranges::any_of(sets, same)) continue;
    set.placement = construct(set.boxes, budget);
    set.joiner.unpack(set.placement, unpacked);
    keep_if_best(problem, unpacked, best);
    sets.push_back(std::move(set));
  }
  return sets;
}

/// One search through all stages: each set of boxes, then the buffers themselves.
class Worker {
 public:
  Worker(const Problem& problem, std::vector<BoxSet> sets, std::uint64_t seed, const Budget& budget,
         const Placement& best)
      : problem_(problem), sets_(std::move(sets)), seed_(seed), budget_(budget), best_(best) {}

  /// `first`: the set to begin with.
  void run(std::size_t first) {
    const auto count = static_cast<double>(sets_.size());
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      const double begin = kBoxes * static_cast<double>(i) / count, end = begin + kBoxes / count;
      search(sets_[(first + i) % sets_.size()], begin, end);
    }
    const bool eject = EjectionSearch::suits(problem_);
    stage(problem_, eject ? kSkyline : 1.0, budget_.goal, search_skyline, best_);
    if (eject) stage(problem_, 1.0, budget_.goal, search_by_ejection, best_);
    if (best_.height > budget_.goal || budget_.solved_after == nullptr) return;
    std::int64_t least = *budget_.solved_after;
    while (budget_.used < least && !budget_.solved_after->compare_exchange_weak(least, budget_.used)) {
    }
  }

  const Placement& best() const { return best_; }
  std::int64_t used() const { return budget_.used; }

 private:
  using Search = void(const Problem&, std::uint64_t seed, Budget&, std::uint64_t most, Placement&);

  static void search_by_ejection(const Problem& problem, std::uint64_t seed, Budget& budget, std::uint64_t most,
                                 Placement& best) {
    EjectionSearch(problem, seed, budget, best).run(most);
  }
  static void search_skyline(const Problem& problem, std::uint64_t seed, Budget& budget, std::uint64_t,
                             Placement& best) {
    planner::search_skyline(problem, seed, budget, best);
  }

  void stage(const Problem& problem, double end, std::uint64_t goal, Search& search, Placement& placement) {
    if (best_.height <= goal) return;
    Budget part = budget_.until(end);
    part.goal = goal;
    search(problem, seed_, part, best_.height, placement);
    budget_.used = part.used;
  }

  void search(BoxSet& set, double begin, double end) {
    const std::uint64_t goal = std::max(budget_.goal, set.boxes.max_live);
    const auto keep = [&] {
      set.joiner.unpack(set.placement, unpacked_);
      keep_if_best(problem_, unpacked_, best_);
    };
    stage(set.boxes, begin + kOpening * (end - begin), goal, search_skyline, set.placement);
    keep();
    if (!EjectionSearch::suits(set.boxes)) return;
    stage(set.boxes, end, goal, search_by_ejection, set.placement);
    keep();
  }

  const Problem& problem_;
  std::vector<BoxSet> sets_;
  std::uint64_t seed_;
  Budget budget_;
  Placement best_, unpacked_;
};

}  // namespace

// Which worker wins must not depend on which thread is faster: of those that reach the goal it is the one that needed
// the fewest iterations, and none stops before it has used as many.
void improve(const Problem& problem, std::uint64_t seed, int workers, Budget& budget, Placement& best) {
  if (best.height <= budget.goal || budget.spent()) return;
  const std::vector<BoxSet> sets = construct_boxes(problem, budget, best);
  if (best.height <= budget.goal) return;
  std::atomic<std::int64_t> solved_after = std::numeric_limits<std::int64_t>::max();
  budget.solved_after = &solved_after;
  std::vector<Worker> searches;
  for (int i = 0; i < workers; ++i)
    searches.emplace_back(problem, sets, mix64(seed + static_cast<std::uint64_t>(i) * kSeedStep), budget, best);
  budget.solved_after = nullptr;
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < searches.size(); ++i)
    others.push_back(std::async(std::launch::async, [&, i] { searches[i].run(i); }));
  searches[0].run(0);
  for (std::future<void>& other : others) other.get();
  const auto better = [](const Worker& a, const Worker& b) {
    return std::pair(a.best().height, a.used()) < std::pair(b.best().height, b.used());
  };
  const Worker& winner = *std::ranges::min_element(searches, better);
  best = winner.best();
  budget.used = winner.used();
}

}  // namespace bantam::planner
