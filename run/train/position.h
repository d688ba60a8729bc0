// Position: the epoch and update of a run, as stored in its state file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The epoch and update at which a run resumes.
struct Position {
  std::int64_t epoch = 0, update = 0;
  // `update` depends on these: a run stopped inside an epoch resumes with the same values.
  std::int64_t effective_batch = 0;  ///< samples an update
  std::int64_t batches = 0;          ///< in an epoch
  std::int64_t seed = 0;
  std::vector<double> sum = {};  ///< of the epoch's updates so far (numbers_of)
  double best = 0;               ///< the best value of the metric that checkpoint.best names
  std::int64_t best_epoch = 0;   ///< from 1; 0: there was no evaluation yet
  std::int64_t evaluated = 0;    ///< TrainerPosition::evaluated
  std::int64_t tested = 0;       ///< updates, over all epochs, after which the test set was evaluated; 0: it was not
  EarlyStopState stop_early = {};

  /// Adds all of it as "trainer/epoch" and so on; the position must outlive the registry.
  void register_state(StateRegistry& state);
};

/// Where a run goes on from `saved`, read from the state file `file`, as `config` says; `now` is what the beginning of
/// a new run of it would be. Throws DataError for numbers that cannot be, ConfigError where the run stopped inside an
/// epoch whose batches or order were others.
Position resumed_position(const Position& saved, const Position& now, const RunConfig& config,
                          const std::filesystem::path& file);

}  // namespace bantam::run
