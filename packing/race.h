// Internal: searches side by side, of which the one that needs the fewest iterations wins, whatever thread is faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "bantam/packing/search.h"

namespace bantam::planner {

/// Runs `search(number, budget)` for the numbers below `workers`, each on a thread of its own; it says whether it
/// reached what it looked for. When one did, those that have used more iterations of their budgets are told that these
/// are spent. Returns the number of the winner: fewest iterations, then lowest number; nothing where none reached it.
/// `budget` continues after the winner, or where the last one stopped. Equal inputs have equal winners, but where the
/// others stopped depends on the machine: only the winner's state may be gone on with.
std::optional<std::size_t> race(std::size_t workers, Budget& budget,
                                const std::function<bool(std::size_t number, Budget& budget)>& search);

}  // namespace bantam::planner
