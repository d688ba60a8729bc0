// A shared count of iterations, lowered by each search that is done, stops those that can no longer win.
#include "bantam/packing/race.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <system_error>
#include <vector>

namespace bantam::planner {

std::optional<std::size_t> race(std::size_t workers, Budget& budget,
                                const std::function<bool(std::size_t number, Budget& budget)>& search) {
  std::atomic<std::int64_t> solved_after = std::numeric_limits<std::int64_t>::max();
  std::vector<Budget> parts(workers, budget);
  std::vector<char> reached(workers, 0);
  const double before = budget.elapsed();
  const auto run = [&](std::size_t number) {
    Budget& part = parts[number];
    part.solved_after = &solved_after;
    part.go_on_here(before);
    reached[number] = search(number, part);
    part.go_on_here(part.elapsed());
    if (!reached[number]) return;
    std::int64_t least = solved_after;
    while (part.used < least && !solved_after.compare_exchange_weak(least, part.used)) {
    }
  };
  std::vector<std::future<void>> others;
  others.reserve(workers);
  for (std::size_t number = 1; number < workers; ++number) try {
      others.push_back(std::async(std::launch::async, run, number));
    } catch (const std::system_error&) {  // no thread can be made: here, then
      others.push_back(std::async(std::launch::deferred, run, number));
    }
  run(0);
  for (std::future<void>& other : others) other.get();
  std::optional<std::size_t> winner;
  std::int64_t last = 0;
  double seconds = 0;
  for (std::size_t number = 0; number < workers; ++number) {
    last = std::max(last, parts[number].used);
    seconds = std::max(seconds, parts[number].seconds_before);
    if (reached[number] && (!winner || parts[number].used < parts[*winner].used)) winner = number;
  }
  budget.used = winner ? parts[*winner].used : last;
  budget.go_on_here(seconds);
  return winner;
}

}  // namespace bantam::planner
