// The stages of the search: boxes that leave little choice, then the skyline, then ejection, of boxes and of buffers.
#include <algorithm>
#include <numeric>
#include <optional>

#include "bantam/base/philox.h"
#include "bantam/memory/planner_boxes.h"
#include "bantam/memory/planner_ejection.h"
#include "bantam/memory/planner_search.h"

namespace bantam::planner {
namespace {

/// Where in the budget a stage ends.
constexpr double kBoxes = 0.6, kSkyline = 0.65;
/// The room that joins may waste, over the most bytes alive: much room leaves few boxes, little room low arenas.
constexpr double kRooms[] = {1.06, 1.03, 1.01, 1.0};

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
void search_boxes(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test, 2));
  BoxJoiner joiner(problem);
  Placement unpacked;
  const double stages = std::size(kRooms);
  double stage = 0;
  for (const double room : kRooms) {
    if (best.height <= budget.goal || budget.spent()) return;
    const auto most_live = static_cast<std::uint64_t>(room * static_cast<double>(problem.max_live));
    const Problem boxes = joiner.join({.most_waste = 0.1, .most_live = most_live}, random);
    Budget part = budget.until(++stage / stages);
    part.goal = std::max(budget.goal, boxes.max_live);
    if (part.goal >= best.height) continue;
    Placement placement = construct(boxes, part);
    const auto keep = [&] {
      joiner.unpack(placement, unpacked);
      keep_if_best(problem, unpacked, best);
    };
    keep();
    if (best.height <= part.goal) continue;
    Budget opening = budget.until((stage - 0.8) / stages);
    opening.goal = part.goal;
    search_skyline(boxes, seed, opening, placement);
    keep();
    part.used = opening.used;
    if (best.height > part.goal && EjectionSearch::suits(boxes)) {
      EjectionSearch(boxes, seed, part, placement).run(best.height);
      keep();
    }
    budget.used = part.used;
  }
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
