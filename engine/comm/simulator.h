// run_simulated: what ranks do together, run in a simulated world, and judged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bantam/engine/comm/mesh.h"
#include "bantam/engine/comm/simulated_network.h"

namespace bantam {

struct SimulationOptions {
  SimulatedWorldOptions world = {};
  MeshOptions mesh = {};
  bool body_may_fail = false;  ///< errors that the body throws of itself are faults, too
};

/// How a rank ended.
struct SimulatedRank {
  enum class End : std::uint8_t {
    done,    ///< the body returned
    failed,  ///< it threw CommunicationError
    died,    ///< by a fault of the simulation
    error    ///< it threw something else, which was told to the others
  };
  End end = End::done;
  RankFailure failure;  ///< the failure that its error names, where it failed
  std::string message;  ///< the exception's text
};

struct SimulatedRun {
  std::uint64_t seed = 0;
  std::vector<SimulatedRank> ranks;
  std::vector<std::string> faults;  ///< those that happened
  std::set<int> culprits;           ///< ranks that they concern
  bool stuck = false;               ///< all waited for nothing, or there was no end
  double seconds = 0;               ///< on the simulation's clock
  std::int64_t calls = 0;
  std::uint64_t schedule_hash = 0;  ///< the same for two runs of one seed

  /// Whether every rank's body returned.
  bool all_done() const;
  /// Describes what went wrong, with the seed, the faults and each rank's end: a run that did not end, a rank that
  /// failed without a fault, or one that names as the origin a rank which no fault concerned (except that a rank that
  /// stalled may name one that had given it up). Empty: nothing went wrong.
  std::string wrong() const;
};

/// Runs `body(communicator, rank)` on a thread for each of `ranks` ranks, each with a Mesh over its simulated network,
/// one at a time in an order that `seed` decides. The same seed is the same run, where `body` is deterministic and
/// calls the communicator from its own thread alone. Threads that `body` starts run beside it.
SimulatedRun run_simulated(std::uint64_t seed, int ranks, const SimulationOptions& options,
                           const std::function<void(Communicator&, int)>& body);

}  // namespace bantam
