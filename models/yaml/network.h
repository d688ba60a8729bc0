// A model from a config: a list of layers, or a name of the zoo; and the table of layer kinds that it may name, one
// reader a kind.
#pragma once

#include <optional>
#include <string>

#include "bantam/base/config/config.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam::models {

/// By kind: reads a layer's options (all but `name`, which every layer has) and returns the layer. Throws ConfigError
/// at the option's position. The built-in ones are those of engine/layers/layers.h; a program adds its own before it
/// reads its first model. `residual` and `block` are words of the list of layers (network.h), not kinds.
///
///     layer_kinds().add("mixed_pool", [](ConfigMap&) { return std::make_shared<MixedPool>(); });
Registry<Reader<LayerPtr>>& layer_kinds();

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
///       layers:
///         - conv2d: {filters: 64, kernel: 3, padding: same, bias: false}
///         - batch_norm: {activation: relu}
///         - residual:
///             name: block1                # optional; the nodes are then "block1/conv2d", …
///             body: [ … layers … ]
///             shortcut: [ … layers … ]    # optional; the identity without
///             activation: relu            # after the sum; optional
///         - block: {name: head, body: [ … layers … ]}   # a chain under one name: a unit of recompute
///         - flatten
///         - dense: {units: 10}
///
/// or `model: {zoo: resnet18_cifar, classes: 10, input: [32, 32, 3]}` (see zoo.h); `weights: FILE`, or
/// `weights: {file: FILE, skip: ["classifier/*"]}`, may stand beside either. The nodes are those of
/// `engine/layers/layers.h`. Throws ConfigError at the position of what is wrong, shapes that do not fit included (at
/// the layer).
ModelSpec read_model(const ConfigNode& model, const std::string& default_name = "model");

}  // namespace bantam::models
