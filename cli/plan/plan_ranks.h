// `bantam plan --ranks N`: the memory of each rank of a run.
#pragma once

#include <string>

#include "bantam/cli/options/run_names.h"
#include "bantam/run/config/run_config.h"

namespace bantam::cli {

struct PlanRanksFlags {
  int ranks = 1;
  std::string memory;  ///< as typed: bytes for all ranks, or a list with an entry for each
  double seconds = 1;  ///< most time to solve an arena
  bool json = false;
};

/// Prints a row a rank; the exit code is 4 where a rank does not fit.
int plan_ranks_and_print(const RunConfig& config, const PlanRanksFlags& flags);

}  // namespace bantam::cli
