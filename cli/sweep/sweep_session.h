// The runs of a sweep as the program trains them: progress, signals, the table at the end. For `bantam sweep` and
// `bantam train --repeat`.
#pragma once

#include <string>

#include "bantam/cli/options/options.h"
#include "bantam/run/sweep/sweep_folder.h"

namespace bantam::cli {

struct SweepFlags {
  int threads = 0;
  std::string progress = "auto";
  bool json = false;  ///< one object instead of the table
};

/// CONFIG and its overrides, without axes. Throws ConfigError where the file cannot be read.
SweepPlan plan_of(const CommonOptions& options);

/// Trains what is left of the sweep and prints what all of it came to. Returns the exit code: 1 where a run failed.
int train_and_print(const Sweep& sweep, const SweepFlags& flags);

}  // namespace bantam::cli
