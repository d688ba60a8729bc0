// The table of layer kinds that a config may name, one reader a kind.
#pragma once

#include "bantam/base/config/config_registry.h"
#include "bantam/engine/layers/layer.h"

namespace bantam::models {

/// By kind: reads a layer's options (all but `name`, which every layer has) and returns the layer. Throws ConfigError
/// at the option's position. The built-in ones are those of engine/layers/layers.h; a program adds its own before it
/// reads its first model. `residual` and `block` are words of the list of layers (network.h), not kinds.
///
///     layer_kinds().add("mixed_pool", [](ConfigMap&) { return std::make_shared<MixedPool>(); });
Registry<Reader<LayerPtr>>& layer_kinds();

}  // namespace bantam::models
