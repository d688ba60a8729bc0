// Shared by `profile memory` and `profile step`: which steps are looked at.
#pragma once

#include <cstdint>
#include <string>

#include "bantam/cli/options/options.h"

namespace bantam::cli {

/// Steps of a run, counted from 1; both ends are in it.
struct StepRange {
  std::int64_t first = 1, last = 1;
};

/// "2-4", or "3" for one step; at most `most`. Throws ConfigError naming --steps.
StepRange parse_step_range(const std::string& text, std::int64_t most);

void add_profile_memory(CLI::App& profile, Action& action);
void add_profile_step(CLI::App& profile, Action& action);

}  // namespace bantam::cli
