// The weights that a run begins with, from another run's file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bantam/engine/graph/model.h"

namespace bantam::run {

/// Reads a weights file into the parameters and running statistics that have the names and shapes of its tensors.
/// Returns the names of the others of the model, which keep their initial values: a head of another number of classes,
/// say. Waits for the device. Throws DataError where the file cannot be read or has nothing of the model.
std::vector<std::string> begin_with_weights(Model& model, const std::filesystem::path& path);

}  // namespace bantam::run
