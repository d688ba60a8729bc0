// Weights of convolutions that whiten the images, made from the first training images before a run's first update.
#pragma once

#include <string>

#include "bantam/engine/model/model.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Writes the weights of all layers with Conv2dOptions::whiten, from the first training images as the pipeline
/// normalises them, without augmentation; they are read once more, and on the CPU. Waits for the device. Returns a line
/// for the user, empty where there is no such layer. Throws ConfigError, DataError.
std::string whiten(Model& model, const RunConfig& config);

}  // namespace bantam::run
