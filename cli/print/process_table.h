// A planned run's memory on a GPU besides its pool, as a table for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bantam/cli/options/run_names.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::cli {

/// A table of named lines, up to the least limit; without a pool, up to the bytes besides it. "" where only pools
/// count.
std::string process_table(const PlanTarget& target, std::optional<std::uint64_t> pool_bytes);
}  // namespace bantam::cli
