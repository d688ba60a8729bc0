// Readers of options that several layers of a configuration have: extents, padding, activation, initializer.
#pragma once

#include "bantam/base/config/config.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::layers {

/// Counts of filters, units, groups.
inline constexpr IntegerRange kCount{.min = 1, .max = 1 << 24};

/// Keys of all convolutions.
inline const ConfigKey kFilters{"filters", "Channels of the output.", "64"};
inline const ConfigKey kMultiplier{
    "multiplier", "Filters of each channel: the depthwise part has channels × multiplier outputs.", "2"};
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
/// The key of `attention` and of the block `multi_head_attention`.
inline const ConfigKey kHeads{"heads", "Heads: each attends with queries, keys and values of its own.", "6"};
/// Keys of all norms.
inline const ConfigKey kNormScale{"scale", "Whether a trained factor a channel is there (γ)."};
inline const ConfigKey kNormShift{"shift", "Whether a trained value a channel is added (β)."};
/// Smaller epsilons would be lost beside any variance, and the smallest are 0 in float32.
inline constexpr NumberRange kNormEpsilon{.min = 1e-12, .max = 1};

/// One integer for both or [height, width]: required, or with a default.
Extent2d read_extent(ConfigMap& options, ConfigKey key);
Extent2d read_extent(ConfigMap& options, ConfigKey key, Extent2d otherwise);

/// `padding: valid | same | N | [height, width] | {top, bottom, left, right}`; valid where it is missing.
inline constexpr std::string_view kPaddingMeaning =
    "Pixels added around the image. valid: none; same: as many as keep ceil(size / stride) outputs, as in Keras; or "
    "their number: on all sides, as [height, width], or for each side.";
Padding read_padding(ConfigMap& options, std::string_view meaning = kPaddingMeaning);

/// `kernel`, `stride`, `dilation` and `padding` of a convolution.
template <class Options>
void read_window(ConfigMap& options, Options& conv) {
  conv.kernel = read_extent(options, kKernel);
  conv.stride = read_extent(options, kStride, {1, 1});
  conv.dilation = read_extent(options, kDilation, {1, 1});
  conv.padding = read_padding(options);
}

/// Amounts for the sides: N | [height, width] | {top, bottom, left, right}; required.
Padding read_amounts(ConfigMap& options, ConfigKey key);

/// `zeros | replicate | reflect | circular` under `key`; zeros where it is missing.
ops::PaddingMode read_padding_mode(ConfigMap& options, std::string_view key);

/// `activation: relu` or `activation: {leaky_relu: {slope: 0.2}}`; none where it is missing.
ActivationOptions read_activation(ConfigMap& options);
/// Reads an activation under another key, or with another default.
ActivationOptions read_activation(ConfigMap& options, const ConfigKey& key, std::string_view otherwise);

/// Reads the layer that is one activation.
Reader<LayerPtr> activation_reader(Activation kind);

/// `slope` of a leaky_relu, `alpha` of an elu; other activations have no options.
ActivationOptions read_activation_options(Activation kind, ConfigMap& options);

/// `initializer: he_normal` or `initializer: {truncated_normal: 0.02}`; Keras' glorot_uniform where it is missing.
InitializerOptions read_initializer(ConfigMap& options);
/// The value of `initializer`.
InitializerOptions as_initializer(const ConfigNode& node);
/// The same of a map, whose other keys the caller reads; nothing where none of its keys is an initializer.
std::optional<InitializerOptions> find_deviation(ConfigMap& map);

}  // namespace bantam::layers
