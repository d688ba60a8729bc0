// Options that many layers of a config share: extents, padding, activation, initializer.
#pragma once

#include "bantam/base/config/config.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::models {

/// One integer for both or [height, width]: required, or with a default.
Extent2d read_extent(ConfigMap& options, ConfigKey key);
Extent2d read_extent(ConfigMap& options, ConfigKey key, Extent2d otherwise);

/// `padding: valid | same | N | [height, width] | {top, bottom, left, right}`; valid where it is missing.
Padding read_padding(ConfigMap& options);

/// `activation: relu` or `activation: {leaky_relu: {slope: 0.2}}`; none where it is missing.
ActivationOptions read_activation(ConfigMap& options);
/// The same under another key, or with another default.
ActivationOptions read_activation(ConfigMap& options, const ConfigKey& key, std::string_view otherwise);

/// `slope` of a leaky_relu, `alpha` of an elu; other activations have no options.
ActivationOptions read_activation_options(Activation kind, ConfigMap& options);

/// `initializer: he_normal`; Keras' glorot_uniform where it is missing.
std::string read_initializer(ConfigMap& options);

}  // namespace bantam::models
