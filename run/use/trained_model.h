// TrainedModel: what came out of a run: configuration, weights and class names, wherever they lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct TrainedModelOptions {
  /// Of a run's folder: "last", "best", or a number of updates, of a checkpoint that is there; empty: the run's
  /// weights.safetensors, or, where it has not ended, its newest checkpoint.
  std::string checkpoint = {};
  bool ema = false;                         ///< the averaged weights (train.ema)
  std::filesystem::path config = {};        ///< needed for a weights file; replaces a run's own
  std::vector<std::string> overrides = {};  ///< of the configuration, as --set
};

struct TrainedModel {
  RunConfig config;  ///< `data` may be missing
  std::filesystem::path weights_file;
  SafetensorsFile weights;               ///< checked: all parameters and buffers of config.model.graph, float32
  std::vector<std::string> class_names;  ///< of the file's metadata, else of run.json, else of the data; may be empty
  std::optional<std::int64_t> updates;   ///< of a checkpoint
};

/// `path`: a run's folder, one of its checkpoints, or a weights file (then `options.config` is needed, unless it lies
/// in a run's folder). Neither locks nor changes the run. Throws DataError naming what is missing and what there is,
/// ConfigError.
TrainedModel open_trained_model(const std::filesystem::path& path, const TrainedModelOptions& options = {});

}  // namespace bantam::run
