// A planned run's memory on a GPU besides its pool, as a table for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bantam/cli/config/run_names.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::cli {

/// A table of named lines, down to the least limit; without a pool, to what a limit holds besides it. "" where only
/// pools count.
std::string process_table(const PlanTarget& target, std::optional<std::uint64_t> pool_bytes);
}  // namespace bantam::cli
