// The configuration of each rank of a run: its memory limits, its replicas, its recompute.
#pragma once

#include <functional>
#include <vector>

#include "bantam/run/config/run_config.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/ranks/run_ranks.h"

namespace bantam::run {

/// Throws ConfigError, saying what to set, where `ranks` processes cannot train the configuration: fewer replicas,
/// samples that are packed into the run's folder, `train.split` or a list of limits of another length.
void require_ranks(const RunConfig& config, int ranks);

/// How many replicas each rank has, by `train.split`; `speeds` (replicas a second, one a rank) are asked for where that
/// is `auto`. Throws ConfigError.
std::vector<int> assigned_replicas(const RunConfig& config, int ranks,
                                   const std::function<std::vector<double>()>& speeds);

/// The configuration, whose device is the rank's, as rank `rank` runs it: limits that are lists have its own entry, and
/// its replicas are those that `assigned` says. Of GPUs only its own counts: without a limit by its number it has that
/// of cuda:0.
RunConfig config_of_rank(const RunConfig& config, int rank, const std::vector<int>& assigned);

/// Forward and backward of replicas a second on this rank: of a step like the run's, on random samples, timed after one
/// that is not. Where the rank's limit is too small for it, with all recomputed.
double measured_speed(const RunConfig& config, int threads);

/// Called on the only rank, or on rank 0 of several: decides all that the ranks share, a batch size that is `auto`
/// under rank 0's limits, and sends it to the others. With one rank nothing is left to decide; with several the rest is
/// each rank's (decide_own). `new_run`: the run begins. Throws ConfigError as require_ranks, and as `decide`.
RunConfig share_config(const RunConfig& config, const RunRanks& ranks, bool new_run, DecisionLog& log);
/// Called on the other ranks: rank 0's configuration, read with this rank's data, for this rank's device
/// (device_of_rank).
RunConfig receive_config(const RunRanks& ranks);
/// Called on every rank of several, with what was shared: assigns the replicas, then decides this rank's own values
/// (for_rank) under its limits. Returns the configuration of the only rank as it is.
RunConfig decide_own(const RunConfig& shared, const RunRanks& ranks, int threads, DecisionLog& log);

}  // namespace bantam::run
