// An ONNX model of supported operators as a network of our own: YAML and weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

/// A network that a configuration can name: `model: {…}` whose layers read `weights` (model.weights).
struct ImportedNetwork {
  std::string yaml;         ///< the value of `model:`, a block mapping without indentation, with input and layers
  SafetensorsFile weights;  ///< in the names that the layers' parameters have
  std::vector<std::string> notes;  ///< what was left out or changed on the way, a line each: "Dropout 'drop1' …"
};

/// Images of `model` are (batch, channels, height, width), or (batch, height, width, channels) where it begins with a
/// Transpose of them. Throws DataError that names the node, its op, and what is not supported about it.
ImportedNetwork import_model(const Model& model);

}  // namespace bantam::onnx
