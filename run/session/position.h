// Position: where a run stands, as its state file keeps it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Where a run goes on.
struct Position {
  std::int64_t epoch = 0, update = 0;
  // What `update` means nothing without: a run stopped inside an epoch goes on with the same.
  std::int64_t effective_batch = 0;  ///< samples an update
  std::int64_t batches = 0;          ///< in an epoch
  std::int64_t seed = 0;

  /// Adds the numbers as counters "trainer/epoch" and so on; the position must outlive the registry.
  void register_state(StateRegistry& state);
};

/// Where a run goes on from `saved`, read from a state file of `folder`, as `config` says; `now` is what the beginning
/// of a new run of it would be. Throws DataError for numbers that cannot be, ConfigError where the run has finished its
/// epochs, or stopped inside an epoch whose batches or order were others.
Position resumed_position(const Position& saved, const Position& now, const RunConfig& config,
                          const std::filesystem::path& folder);

}  // namespace bantam::run
