// Readers of normalisations beside batch_norm. Their epsilons are PyTorch's and ConvNeXt's.
#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"

namespace bantam::models {
namespace {

float read_epsilon(ConfigMap& options, const ConfigKey& key, double otherwise) {
  return static_cast<float>(options.number(key, {.min = 1e-12, .max = 1}, otherwise));
}
bool read_scale(ConfigMap& options) {
  return options.boolean({"scale", "Whether a trained factor a channel is there (γ)."}, true);
}
bool read_shift(ConfigMap& options) {
  return options.boolean({"shift", "Whether a trained value a channel is added (β)."}, true);
}

LayerPtr read_layer_norm(ConfigMap& options) {
  options.describe(
      "Layer normalisation over the last axis, each position by itself: y = scale · (x - mean) / √(variance + epsilon) "
      "+ shift. The same in training and in evaluation.",
      "layer_norm");
  LayerNormOptions norm;
  norm.epsilon = read_epsilon(options,
                              {"epsilon",
                               "Added to the variance, against division by 0. ConvNeXt's default; PyTorch has 1e-5, "
                               "Keras 1e-3.",
                               "1e-5"},
                              1e-6);
  norm.scale = read_scale(options);
  norm.shift = read_shift(options);
  return layer_norm(norm);
}

/// What group_norm and instance_norm have in common.
GroupNormOptions read_sample_norm(ConfigMap& options) {
  GroupNormOptions norm;
  norm.epsilon = read_epsilon(
      options, {"epsilon", "Added to the variance, against division by 0. PyTorch's default; Keras has 1e-3.", "1e-3"},
      1e-5);
  norm.scale = read_scale(options);
  norm.shift = read_shift(options);
  norm.activation = read_activation(options);
  return norm;
}

LayerPtr read_group_norm(ConfigMap& options) {
  options.describe(
      "Group normalisation: y = activation(scale · (x - mean) / √(variance + epsilon) + shift), with the mean and the "
      "variance of each sample and group of neighbouring channels. No statistics of the batch: it suits small batches, "
      "and evaluation is as training.",
      "group_norm: {groups: 16, activation: silu}");
  const std::int64_t groups = options.integer(
      {"groups", "Groups that the channels are divided into; must divide them. 1: all channels of a sample.", "16"},
      {.min = 1, .max = 1 << 24}, 32);
  GroupNormOptions norm = read_sample_norm(options);
  norm.groups = groups;
  return group_norm(norm);
}

LayerPtr read_instance_norm(ConfigMap& options) {
  options.describe(
      "Instance normalisation: a group norm with a group for each channel, so each channel of a sample is normalised "
      "by itself. PyTorch's InstanceNorm2d has no scale and shift by default.",
      "instance_norm: {scale: false, shift: false}");
  GroupNormOptions norm = read_sample_norm(options);
  norm.groups = 0;
  return group_norm(norm);
}

}  // namespace

Kinds norm_kinds() {
  return {{"layer_norm", read_layer_norm}, {"group_norm", read_group_norm}, {"instance_norm", read_instance_norm}};
}

}  // namespace bantam::models
