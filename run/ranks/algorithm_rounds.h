// Warm-ups of several ranks in turns, so that each problem of a library is timed once, by one rank, for all.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "bantam/run/ranks/run_ranks.h"

namespace bantam::run {

/// Library choices of one rank (kernels::AlgorithmChoices), as far as the rounds need them.
struct RoundChoices {
  std::function<void(bool on)> set_timing;
  std::function<std::map<std::string, std::string>()> all;
  std::function<void(const std::map<std::string, std::string>&)> add;  ///< for problems that have none
};

/// The facts of a rank that decide which problems it meets, and whose choices suit it.
struct RoundMember {
  std::string card;  ///< the model of its GPU: choices are of one model
  std::string work;  ///< ranks of a card whose work is equal meet the same problems
  bool may_time = true;
};

/// Calls `warm_up`, which runs all that the run will run, once on every rank. The first rank of each card and work does
/// so in its turn, with timing on, knowing what those before it have chosen; its choices are sent to all. Then all
/// other ranks do, at once, and find every problem chosen. Timing is off afterwards, so that a problem which nobody
/// met, or had no room to time, gets the library's first choice, on any number of ranks. With one rank this is: timing,
/// warm-up, no timing. All ranks call it. Throws CommunicationError and what `warm_up` throws.
void warm_up_in_rounds(const RunRanks& ranks, const RoundMember& member, const RoundChoices& choices,
                       const std::function<void()>& warm_up);

}  // namespace bantam::run
