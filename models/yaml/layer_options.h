// Options that many layers of a config share: keys of convolutions, extents, padding, activation, initializer.
#pragma once

#include "bantam/base/config/config.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::models {

/// Counts of filters, units, groups.
inline constexpr IntegerRange kCount{.min = 1, .max = 1 << 24};

/// Keys of all convolutions.
inline const ConfigKey kKernel{"kernel", "Extents of the kernel: one number for both, or [height, width].",
                               "3 | [1, 7]"};
inline const ConfigKey kStride{"stride", "Step between outputs: one number for both, or [height, width].", "2"};
inline const ConfigKey kDilation{"dilation",
                                 "Step between the kernel's inputs: one number for both, or [height, width].", "2"};
inline const ConfigKey kGroups{
    "groups", "Groups of channels that are convolved apart. Must divide the channels of input and output.", "2"};
inline const ConfigKey kBias{"bias",
                             "Whether a value a channel is added. A batch norm that follows makes it useless: false "
                             "saves it."};

/// One integer for both or [height, width]: required, or with a default.
Extent2d read_extent(ConfigMap& options, ConfigKey key);
Extent2d read_extent(ConfigMap& options, ConfigKey key, Extent2d otherwise);

/// `padding: valid | same | N | [height, width] | {top, bottom, left, right}`; valid where it is missing.
inline constexpr std::string_view kPaddingMeaning =
    "Pixels added around the image. valid: none; same: as many as keep ceil(size / stride) outputs, as in Keras; or "
    "their number: on all sides, as [height, width], or for each side.";
Padding read_padding(ConfigMap& options, std::string_view meaning = kPaddingMeaning);

/// Amounts for the sides: N | [height, width] | {top, bottom, left, right}; required.
Padding read_amounts(ConfigMap& options, ConfigKey key);

/// `zeros | replicate | reflect | circular` under `key`; zeros where it is missing.
ops::PaddingMode read_padding_mode(ConfigMap& options, std::string_view key);

/// `activation: relu` or `activation: {leaky_relu: {slope: 0.2}}`; none where it is missing.
ActivationOptions read_activation(ConfigMap& options);
/// The same under another key, or with another default.
ActivationOptions read_activation(ConfigMap& options, const ConfigKey& key, std::string_view otherwise);

/// `slope` of a leaky_relu, `alpha` of an elu; other activations have no options.
ActivationOptions read_activation_options(Activation kind, ConfigMap& options);

/// `initializer: he_normal`; Keras' glorot_uniform where it is missing.
std::string read_initializer(ConfigMap& options);
/// The same of a convolution, which `initializer: {whiten: {images: 960, epsilon: 5.0e-4}}` may also say.
void read_initializer(ConfigMap& options, Conv2dOptions& conv);

}  // namespace bantam::models
