// Internal: the stages of the search, and the budget they share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "bantam/packing/placement.h"
#include "bantam/packing/planner.h"

namespace bantam::planner {

/// Seconds of processor time that this thread has used.
double thread_seconds();

/// When to stop, and what was used so far. Time is the processor time of the threads, one after another: a machine that
/// is busy with other programs is slower, but stops a search no earlier.
struct Budget {
  double seconds = 0;  ///< 0: no limit
  std::int64_t iterations = 0;
  std::uint64_t goal = 0;      ///< a height that is good enough
  bool goal_is_exact = false;  ///< a capacity: a search does not stop a little above it
  std::int64_t used = 0;
  /// Searches side by side share this: after how many iterations one of them reached the goal. A search that has used
  /// more is of no use any longer.
  std::atomic<std::int64_t>* solved_after = nullptr;
  double seconds_before = 0;        ///< used before this thread went on
  double begun = thread_seconds();  ///< the thread's time then

  double elapsed() const { return seconds_before + thread_seconds() - begun; }
  /// To be called by the thread that continues a search that has used `before` seconds.
  void go_on_here(double before) {
    seconds_before = before;
    begun = thread_seconds();
  }
  /// The used share, by iterations or time, whichever is further: 1 is the end.
  double progress() const {
    if (solved_after != nullptr && used > solved_after->load(std::memory_order_relaxed)) return 1.0;
    const double of_iterations = iterations > 0 ? static_cast<double>(used) / static_cast<double>(iterations) : 1.0;
    return std::max(of_iterations, seconds > 0 ? elapsed() / seconds : 0.0);
  }
  bool spent() const { return progress() >= 1.0; }
  /// The same of the time alone, of a share of it.
  bool is_over(double share) const { return seconds > 0 && elapsed() >= share * seconds; }
  /// The same, ending at a share of it.
  Budget until(double share) const {
    Budget part = *this;
    part.seconds *= share;
    part.iterations = static_cast<std::int64_t>(static_cast<double>(iterations) * share);
    return part;
  }
};

/// So near to the lower bound that no search is worth its time.
inline std::uint64_t near_bound(std::uint64_t max_live) { return max_live + max_live / 1000; }

/// Keeps a placement if it is the best, with buffers let down into gaps below them, which a skyline cannot see.
void keep_if_best(const Problem& problem, const Placement& found, Placement& best, const Stop& stop = {});
/// Tries the constructed orders as long as there is time; returns the best placement. Always makes at least one.
Placement construct(const Problem& problem, Budget& budget);
/// Improves `best` by other choices of the skyline, until the goal is reached or the budget is used up.
void search_skyline(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best);
/// All stages: boxes, skyline, ejection, by so many workers side by side, each with the whole budget.
/// Improves `best` until the goal is reached, or near_bound() unless the goal is exact, or the budget is used up.
void improve(const Problem& problem, std::uint64_t seed, int workers, Budget& budget, Placement& best);

}  // namespace bantam::planner
