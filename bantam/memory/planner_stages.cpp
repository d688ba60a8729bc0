// The stages of the search: boxes that leave little choice, then the skyline, then ejection, of boxes and of buffers.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "bantam/memory/planner_boxes.h"
#include "bantam/memory/planner_ejection.h"
#include "bantam/memory/planner_search.h"

namespace bantam::planner {
namespace {

/// Where in the budget a stage ends; of the boxes' searches each begins with the skyline.
constexpr double kBoxes = 0.85, kSkyline = 0.87, kOpening = 0.2;

/// The room that joins may waste, over the most bytes alive, and which sizes are alike: generous rules leave few boxes,
/// strict ones low arenas.
struct Generosity {
  double room, alike;
};
constexpr Generosity kGenerosities[] = {{1.06, 0.1}, {1.03, 0.05}, {1.01, 0.1}, {1.0, 0.05}};

/// Lets buffers down into gaps below them, and keeps the placement if it is the best.
void keep_if_best(const Problem& problem, const Placement& found, Placement& best) {
  if (found.height >= best.height) return;
  best = found;
  std::vector<Index> order(problem.count());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](Index b) { return found.offset[static_cast<std::size_t>(b)]; });
  Placement lower;
  GapPlacer(problem).place(order, Fit::first, found.height, lower);
  if (lower.height <= best.height) best = std::move(lower);
}

/// Packs boxes instead of buffers.
class BoxSearch {
 public:
  BoxSearch(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best)
      : problem_(problem), seed_(seed), budget_(budget), best_(best) {}

  /// First all sets of boxes are only constructed, which is often enough; then each is searched.
  void run() {
    for (const Generosity& generosity : kGenerosities) {
      if (best_.height <= budget_.goal || budget_.spent()) return;
      construct_boxes(generosity);
    }
    for (std::size_t i = 0; i < sets_.size(); ++i)
      search(sets_[i], budget_.until(static_cast<double>(i) / sets_.size()), budget_.until((i + 1.0) / sets_.size()));
  }

 private:
  struct Set {
    BoxJoiner joiner;
    Problem boxes;
    Placement placement;
  };

  void construct_boxes(const Generosity& generosity) {
    Set set{.joiner = BoxJoiner(problem_)};
    const double most_live = generosity.room * static_cast<double>(problem_.max_live);
    set.boxes = set.joiner.join(
        {.most_waste = 0.1, .alike = generosity.alike, .most_live = static_cast<std::uint64_t>(most_live)});
    for (const Set& other : sets_)
      if (other.boxes.lower == set.boxes.lower && other.boxes.size == set.boxes.size) return;
    set.placement = construct(set.boxes, budget_);
    keep(set);
    sets_.push_back(std::move(set));
  }

  void search(Set& set, const Budget& begin, Budget end) {
    const std::uint64_t goal = std::max(budget_.goal, set.boxes.max_live);
    if (best_.height <= goal) return;
    Budget opening = end;
    opening.iterations = begin.iterations + static_cast<std::int64_t>(kOpening * (end.iterations - begin.iterations));
    opening.seconds = begin.seconds + kOpening * (end.seconds - begin.seconds);
    opening.goal = end.goal = goal;
    opening.used = budget_.used;
    search_skyline(set.boxes, seed_, opening, set.placement);
    keep(set);
    end.used = opening.used;
    if (best_.height > goal && EjectionSearch::suits(set.boxes)) {
      EjectionSearch(set.boxes, seed_, end, set.placement).run(best_.height);
      keep(set);
    }
    budget_.used = end.used;
  }

  void keep(const Set& set) {
    set.joiner.unpack(set.placement, unpacked_);
    keep_if_best(problem_, unpacked_, best_);
  }

  const Problem& problem_;
  std::uint64_t seed_;
  Budget& budget_;
  Placement& best_;
  std::vector<Set> sets_;
  Placement unpacked_;
};

void search_boxes(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best) {
  BoxSearch(problem, seed, budget, best).run();
}

void search_by_ejection(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best) {
  EjectionSearch(problem, seed, budget, best).run(best.height);
}

}  // namespace

void improve(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best) {
  if (best.height <= budget.goal || budget.spent()) return;
  const auto stage = [&](double share, auto search) {
    if (best.height <= budget.goal) return;
    Budget part = budget.until(share);
    search(problem, seed, part, best);
    budget.used = part.used;
  };
  if (BoxJoiner::suits(problem)) stage(kBoxes, search_boxes);
  const bool eject = EjectionSearch::suits(problem);
  stage(eject ? kSkyline : 1.0, search_skyline);
  if (eject) stage(1.0, search_by_ejection);
}

}  // namespace bantam::planner
