// Best weights: of which evaluation weights-best.safetensors is, and what a run that goes on makes of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "bantam/engine/train/state_snapshot.h"
#include "bantam/run/train/position.h"
#include "bantam/run/train/run_directory.h"

namespace bantam::run {

/// An evaluation that was better than all before. The file of its weights names it in its metadata ("bantam.best").
struct BestEvaluation {
  std::int64_t epoch = 0;  ///< from 1
  double value = 0;
  std::string metric;
  bool operator==(const BestEvaluation&) const = default;
};

/// checkpoint.best, else what run.json calls the best.
WatchedMetric best_rule(const RunConfig& config);
/// Which weights the run's evaluations are of: "weights", or "averages" (train.ema).
std::string evaluated_weights(const RunConfig& config);
/// The position's best evaluation; epoch 0: there is none.
BestEvaluation best_of(const Position& position, const RunConfig& config);

/// Writes the snapshot's weights, or their averages, as those of `best`. Throws DataError. Returns the file's SHA-256.
std::string write_best_weights(const std::filesystem::path& path, const StateSnapshot& snapshot,
                               const RunConfig& config, const BestEvaluation& best);

/// A run that goes on from a checkpoint.
struct BestAtResume {
  const RunConfig& config;
  const RunDirectory& directory;
  const CheckpointFacts& facts;  ///< of the checkpoint; of a new run, none
  Position& position;            ///< as the checkpoint has it
  std::string metric = {};       ///< that its best is of, where the checkpoint is of a program that did not note it
};

/// Makes weights-best.safetensors that of the position's best evaluation: updates after the checkpoint, which are
/// thrown away, may have written another one, or a session without checkpoint.best none. Where the checkpoint itself is
/// of the best evaluation, `write` writes its weights anew; else the file is removed with a warning, and the next
/// evaluation is the best so far. A best of another metric is none to compare with. Throws DataError.
void keep_best_weights(const BestAtResume& run, const std::function<void(const BestEvaluation&)>& write,
                       const std::function<void(std::string_view)>& warn);

}  // namespace bantam::run
