// What of a configuration is a rank's own: its memory limits, its replicas, its recompute.
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
std::vector<int> dealt_replicas(const RunConfig& config, int ranks, const std::function<std::vector<double>()>& speeds);

/// The configuration, whose device is the rank's, as rank `rank` runs it: limits that are lists have its own entry, and
/// its replicas are those that `dealt` says. Of GPUs only its own counts: without a limit by its number it has that of
/// cuda:0.
RunConfig config_of_rank(const RunConfig& config, int rank, const std::vector<int>& dealt);

/// Forward and backward of replicas a second on this rank: of a step like the run's, on random samples, timed after one
/// that is not. Where the rank's limit is too small for it, with all recomputed.
double measured_speed(const RunConfig& config, int threads);

/// On rank 0: settles what all ranks have in common (settle), a batch size that is `auto` among it, under rank 0's
/// limits, and `cache: auto` for all (settle_cache_of_ranks), and sends it to the others. Recompute stays open, where
/// it was. Throws ConfigError as require_ranks.
RunConfig send_config(const RunConfig& config, const RunRanks& ranks, Settled& settled);
/// On the others: rank 0's configuration, read with this rank's data, on this rank's device (device_of_rank).
RunConfig receive_config(const RunRanks& ranks);
/// Each rank's own of what was sent: deals the replicas, then settles recompute for its share and its limits.
RunConfig settle_own(const RunConfig& sent, const RunRanks& ranks, int threads, Settled& settled);

}  // namespace bantam::run
