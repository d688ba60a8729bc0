// A model from a config: a list of layers (layer_kinds(), engine/layers/layers.h), or a name of the zoo.
#pragma once

#include <optional>
#include <string>

#include "bantam/base/api.h"
#include "bantam/base/config/config.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/train/safetensors.h"

BANTAM_API_BEGIN
namespace bantam::models {

using bantam::layer_kinds;

/// `weights:`, the file that a run's weights begin with. It is not opened.
struct ModelWeights {
  std::string file;
  std::string sha256;  ///< that the file must have; empty: not known yet
  WeightsOptions options;
};

/// A config's `model:` and its positions in the file (for errors found later, e.g. that the data has other shapes).
struct ModelSpec {
  std::string name;  ///< `name:`, the zoo's name, or the caller's name
  Graph graph;
  ConfigNode input;   ///< where the input's shape stands
  ConfigNode output;  ///< the layer (or zoo name) that makes the output
  std::optional<ModelWeights> weights = {};
};

/// Reads
///
///     model:
///       name: my_net                      # optional
///       input: [32, 32, 3]                # height, width, channels
///       parameters: {classes: 10}         # optional: names for expressions, $(…)
///       blocks:                           # optional: named blocks
///         conv_norm:
///           parameters: {filters: null, kernel: 3}   # null: a use has to say the value
///           layers:
///             - conv2d: {filters: $(filters), kernel: $(kernel), padding: $(kernel // 2), bias: false}
///             - batch_norm: {activation: relu}
///       layers:
///         - conv_norm: {filters: 64, name: stem, repeat: 2}
///         - residual:
///             name: block1                # optional; the nodes are then "block1/conv2d", …
///             body: [ … layers … ]
///             shortcut: [ … layers … ]    # optional; the identity without
///             activation: relu            # after the sum; optional
///         - block: {name: head, body: [ … layers … ]}   # a chain under one name: a unit of recompute
///         - add: {inputs: [head, stem]}   # outputs by name; without inputs: the entry before
///         - flatten
///         - dense: {units: 10}
///
/// or `model: {zoo: resnet18_cifar, classes: 10, input: [32, 32, 3]}` (see zoo.h); `weights: FILE`, or
/// `weights: {file: FILE, skip: ["classifier/*"]}`, may stand beside either. The nodes are those of
/// `engine/layers/layers.h`. docs/NETWORKS.md describes the lists. Throws ConfigError at the position of what is wrong,
/// shapes that do not fit included (at the layer, and at the use of the block that it is in).
ModelSpec read_model(const ConfigNode& model, const std::string& default_name = "model");

}  // namespace bantam::models
BANTAM_API_END
