// A thread for each rank of a simulated world; how each of them ended.
#include "bantam/engine/comm/simulator.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace bantam {
namespace {

const char* name_of(SimulatedRank::End end) {
  switch (end) {
    case SimulatedRank::End::done:
      return "done";
    case SimulatedRank::End::failed:
      return "failed";
    case SimulatedRank::End::died:
      return "died";
    case SimulatedRank::End::error:
      return "error";
  }
  return "";
}

void run_body(Communicator& ranks, const std::function<void(Communicator&, int)>& body, SimulatedRank& result) {
  try {
    body(ranks, ranks.rank());
  } catch (const CommunicationError& error) {
    result = {SimulatedRank::End::failed, error.failure(), error.what()};
  } catch (const std::exception& error) {
    result = {SimulatedRank::End::error, {}, error.what()};
    ranks.fail(error.what());
  }
}

void run_rank(SimulatedWorld& world, int rank, const SimulationOptions& options,
              const std::function<void(Communicator&, int)>& body, SimulatedRank& result) {
  world.begin(rank);
  try {
    Mesh mesh(world.network(rank), options.mesh);
    run_body(mesh, body, result);
  } catch (const SimulatedDeath&) {
    result = {SimulatedRank::End::died, {}, ""};
  }
  if (world.dead(rank)) result = {SimulatedRank::End::died, {}, ""};
  world.end(rank);
}

/// Whether a rank that was given up (it stalled) found the others gone, and names one of them: nobody could tell it
/// more.
bool found_others_gone(const SimulatedRun& run, std::size_t rank) {
  const SimulatedRank& other = run.ranks[static_cast<std::size_t>(run.ranks[rank].failure.rank)];
  return run.culprits.contains(static_cast<int>(rank)) && other.end == SimulatedRank::End::failed &&
         run.culprits.contains(other.failure.rank);
}

/// Why a rank's end is not one that the faults explain; empty: they do.
std::string wrong_end(const SimulatedRun& run, std::size_t rank) {
  const SimulatedRank& end = run.ranks[rank];
  const std::string name = "rank " + std::to_string(rank);
  if (end.end == SimulatedRank::End::error && !run.culprits.contains(static_cast<int>(rank)))
    return name + " threw an error of its own";
  if (end.end == SimulatedRank::End::failed && !run.culprits.contains(end.failure.rank) &&
      !found_others_gone(run, rank))
    return name + " blames rank " + std::to_string(end.failure.rank) + ", which no fault concerned";
  return "";
}

}  // namespace

bool SimulatedRun::all_done() const {
  return std::ranges::all_of(ranks, [](const SimulatedRank& rank) { return rank.end == SimulatedRank::End::done; });
}

std::string SimulatedRun::wrong() const {
  std::string reason = stuck ? "the run does not end: all ranks wait, or there were too many calls" : "";
  for (std::size_t rank = 0; rank < ranks.size() && reason.empty(); ++rank) reason = wrong_end(*this, rank);
  if (reason.empty()) return "";
  std::string text = "simulation with seed " + std::to_string(seed) + " and " + std::to_string(ranks.size()) +
                     " ranks, after " + std::to_string(seconds) + " s and " + std::to_string(calls) +
                     " calls: " + reason;
  for (const std::string& fault : faults) text += "\n  fault: " + fault;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    text += "\n  rank " + std::to_string(rank) + ": " + name_of(ranks[rank].end) +
            (ranks[rank].message.empty() ? "" : " (" + ranks[rank].message + ")");
  return text;
}

SimulatedRun run_simulated(std::uint64_t seed, int ranks, const SimulationOptions& options,
                           const std::function<void(Communicator&, int)>& body) {
  SimulatedWorld world(seed, ranks, options.world);
  SimulatedRun run;
  run.seed = seed;
  run.ranks.resize(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back(
          [&, rank] { run_rank(world, rank, options, body, run.ranks[static_cast<std::size_t>(rank)]); });
  }
  run.faults = world.faults();
  run.culprits = world.culprits();
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    if (options.body_may_fail && run.ranks[rank].end == SimulatedRank::End::error)
      run.culprits.insert(static_cast<int>(rank));
  }
  run.stuck = world.stuck();
  run.seconds = world.seconds();
  run.calls = world.calls();
  run.schedule_hash = world.schedule_hash();
  return run;
}

}  // namespace bantam
