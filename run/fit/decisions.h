// Settling a run before it begins: every `auto` and unset value is decided, once, and written into the configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bantam/run/config/run_config.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::run {

/// The decisions, and a message for the user on each.
struct Settled {
  std::optional<BatchChoice> batch;          ///< of `batch: {size: auto}`
  std::optional<RecomputeChoice> recompute;  ///< where a budget or a limit asks for it and the configuration does not
  std::optional<models::ModelWeights> weights;  ///< with the SHA-256 of its file
  std::vector<std::string> messages;
  std::vector<std::string> warnings;
};

/// Decides every `auto` and unset value of a configuration with data; a settled one has none. Throws OutOfMemory where
/// a budget cannot be met, and DataError where the file of `model.weights` cannot be read.
Settled settle(const RunConfig& config);

/// Whether samples are packed into the run's own folder: `cache: disk` that names none.
bool packs_into_run(const DataOptions& data);

/// A new run's configuration with those keys of its data's format that the training samples decide
/// (SampleReader::settled_keys), and `train.one_class` where the data decide it, written into its document. May read
/// the samples; throws DataError.
RunConfig with_data_keys(const RunConfig& config);

/// The configuration with all that was decided, `device: auto` and `precision: auto` included: in its fields, and in
/// its document, so that the resolved text means the same run on any machine.
RunConfig with_settled(const RunConfig& config, const Settled& settled);

}  // namespace bantam::run
