// The table of file formats that a model can be written in.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "bantam/base/registry.h"
#include "bantam/engine/graph/model.h"

namespace bantam {

/// Writes a model to a file, whole or not at all; waits for the device. Throws DataError where the file cannot be
/// written, and Error for a model that the format cannot hold. The model is not changed.
using Exporter = std::function<void(Model& model, const std::filesystem::path& path)>;

/// Built-in: safetensors (save_weights). May be added to at any time.
Registry<Exporter>& exporters();

/// Writes `model` in the format of that name. Throws ConfigError with the nearest name where there is none, and what
/// the exporter throws.
void export_model(Model& model, std::string_view format, const std::filesystem::path& path);

}  // namespace bantam
