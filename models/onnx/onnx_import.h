// An ONNX model of supported operators as a network of our own: YAML and weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

struct ImportOptions {
  /// Height and width of images, where the model does not say them; empty: it does.
  std::vector<std::int64_t> size = {};
  /// Classes of the network to train: a last dense layer of another number is imported with so many units and without
  /// its tensors. 0: as many as the model has.
  std::int64_t classes = 0;
  /// Name of the output that the network has, where the model has several; empty: it has one.
  std::string output = {};
};

/// A network that a configuration can name: `model: {…}` whose layers read `weights` (model.weights).
struct ImportedNetwork {
  std::string yaml;         ///< the value of `model:`, a block mapping without indentation, with input and layers
  SafetensorsFile weights;  ///< in the names that the layers' parameters have
  std::vector<std::string> left_out = {};  ///< tensors of a classifier of other classes, which `weights` does not have
  std::vector<std::string> notes = {};     ///< what was changed on the way, a line each: "node 'log' (LogSoftmax): …"
};

/// Images of `model` are (batch, channels, height, width), or (batch, height, width, channels) where it begins with a
/// Transpose of them. Throws DataError that names the node, its op, and what is not supported about it.
ImportedNetwork import_model(const Model& model, const ImportOptions& options = {});

/// Ops that have layers here, sorted.
std::vector<std::string> supported_ops();

}  // namespace bantam::onnx
