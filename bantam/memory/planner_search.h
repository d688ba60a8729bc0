// Internal: the local search over orders of placement.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bantam/memory/planner.h"
#include "bantam/memory/planner_placement.h"

namespace bantam::planner {

/// When to stop, and what was used so far.
struct Budget {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double seconds = 0;  ///< 0: no limit
  std::int64_t iterations = 0;
  std::uint64_t goal = 0;  ///< a height that is good enough
  std::int64_t used = 0;

  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
  /// The used share, by iterations or time, whichever is further: 1 is the end.
  double progress() const {
    const double of_iterations = iterations > 0 ? static_cast<double>(used) / static_cast<double>(iterations) : 1.0;
    return std::max(of_iterations, seconds > 0 ? elapsed() / seconds : 0.0);
  }
};

/// Tries the constructed orders; gives the best placement.
Placement construct(const Problem& problem, Budget& budget);
/// Improves `best` until the goal is reached or the budget is used up.
void improve(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best);

}  // namespace bantam::planner
