// Position: the epoch and update of a run, as stored in its state file.
#pragma once

#include <cstdint>
#include <filesystem>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The epoch and update at which a run resumes.
struct Position {
  std::int64_t epoch = 0, update = 0;
  // `update` depends on these: a run stopped inside an epoch resumes with the same values.
  std::int64_t effective_batch = 0;  ///< samples an update
  std::int64_t batches = 0;          ///< in an epoch
  std::int64_t seed = 0;

  /// Adds the numbers as counters "trainer/epoch" and so on; the position must outlive the registry.
  void register_state(StateRegistry& state);
};

/// The position at which a run of `config` resumes from `saved`, read from a state file of `folder`; `now` is the first
/// position of a new run. Throws DataError for impossible numbers, ConfigError where the run has finished its epochs,
/// or stopped inside an epoch with other batches or another order.
Position resumed_position(const Position& saved, const Position& now, const RunConfig& config,
                          const std::filesystem::path& folder);

}  // namespace bantam::run
