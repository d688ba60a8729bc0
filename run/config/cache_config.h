// `cache: auto`: where a run's data set is kept.
#pragma once

#include <cstdint>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Ranks that train a run.
struct RankCount {
  int all = 1;
  int local = 1;  ///< on this host
};

/// Decides `cache: auto`; changes nothing where the configuration says which cache. On a GPU the data sets lie on the
/// device where they are a small share of the run's limit, or, where nothing bounds it, small for any GPU: a rule of
/// the configuration alone, so that plans hold. They lie on disk, or nowhere, where host memory has no room for them.
/// Reading a configuration decides for one process. Several ranks, each of which has the whole data set, decide anew:
/// those of a host share its free memory, the least limit of a rank holds for all, and disk is no choice, since the
/// run's folder is rank 0's.
void decide_cache(RunConfig& config, const RankCount& ranks = {});

/// Most bytes of the run's device that `cache: auto` may use for the data set beside a batch of size auto, by the
/// budget or limit; 0: none, or nothing bounds it.
std::uint64_t cache_bytes(const RunConfig& config);

}  // namespace bantam::run
