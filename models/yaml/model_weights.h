// `model.weights`: the file that a run's weights begin with, and how its tensors become the model's.
#pragma once

#include <optional>
#include <string>

#include "bantam/base/config/config.h"
#include "bantam/models/yaml/network.h"

namespace bantam::models {

/// Reads `weights: FILE` or `weights: {file: FILE, rename: […], skip: […], strict: …, sha256: …}` of a model's map;
/// nothing where it has none. The file is not opened. Throws ConfigError.
std::optional<ModelWeights> read_model_weights(ConfigMap& model);

/// The value in YAML's flow style that reads as `weights` does.
std::string to_yaml(const ModelWeights& weights);

}  // namespace bantam::models
