// TrainedModel: what came out of a run: configuration, weights and class names, wherever they lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct TrainedModelOptions {
  /// Chooses weights in a run's folder: "last" (the newest checkpoint), "best" (of checkpoint.best), or a number of
  /// updates that has a checkpoint. Empty: weights.safetensors, or, where the run has not ended, its newest checkpoint.
  std::string checkpoint = {};
  bool ema = false;                         ///< the averaged weights (train.ema)
  std::filesystem::path config = {};        ///< needed for a weights file; replaces a run's own
  std::vector<std::string> overrides = {};  ///< of the configuration, as --set
  /// false: the section `data` is not read, and its files need not be there: config.data is missing.
  bool with_data = true;
  /// The data are a set to be evaluated as a whole: it need not have samples enough to hold some out, or for a batch.
  bool whole_set = false;
};

struct TrainedModel {
  RunConfig config;                    ///< `data` may be missing
  std::filesystem::path run;           ///< the run's folder; empty: a weights file outside of one
  std::filesystem::path weights_file;  ///< that the weights were read from
  /// Exactly the parameters and buffers of config.model.graph, float32, finite; metadata as in the file.
  SafetensorsFile weights;
  std::vector<std::string> class_names;  ///< of the file's metadata, else of run.json, else of the data; may be empty
  std::optional<std::int64_t> updates;   ///< of a checkpoint
  bool averaged = false;                 ///< the weights are averages (train.ema)
};

/// `path`: a run's folder, one of its checkpoints, or a weights file (then `options.config` is needed, unless it lies
/// in a run's folder or in a checkpoint of one). Neither locks nor changes the run, which may be under way. Throws
/// DataError naming what is missing and what there is, ConfigError.
TrainedModel open_trained_model(const std::filesystem::path& path, const TrainedModelOptions& options = {});

}  // namespace bantam::run
