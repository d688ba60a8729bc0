// Normalisations of each sample by itself: group norm with the activation after it, instance norm, layer norm.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

/// A norm's trained vectors; null: it has none.
struct Affine {
  Parameter* scale;
  Parameter* shift;

  Affine(LayerScope& scope, const Shape& channels, bool with_scale, bool with_shift)
      : scale(with_scale ? &scope.parameter("scale", channels, ones(), true, false) : nullptr),
        shift(with_shift ? &scope.parameter("shift", channels, zeros(), true, false) : nullptr) {}
  static Tensor value(Parameter* parameter) { return parameter != nullptr ? parameter->value() : Tensor(); }
};

/// Both norms' traits: backward reads the input and statistics, never the output.
constexpr NodeTraits kNormTraits{.skips_unused_output = true, .separates_inner_ops = true};

class LayerNormLayer : public BuiltInLayer {
 public:
  explicit LayerNormLayer(LayerNormOptions options) : options_(options) {}
  std::string_view kind() const override { return "layer_norm"; }
  NodeTraits traits() const override { return kNormTraits; }
  Shape output_shape(std::span<const Shape> inputs) const override { return with_channels(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Affine affine(scope, {inputs[0][-1]}, options_.scale, options_.shift);
    return bind_function([affine, epsilon = options_.epsilon](const Context& context, const Tensor& x) {
      return ops::layer_norm(context, x, Affine::value(affine.scale), Affine::value(affine.shift), epsilon);
    });
  }

 private:
  Described describe() const override { return options_; }
  LayerNormOptions options_;
};

class GroupNormLayer : public BuiltInLayer {
 public:
  explicit GroupNormLayer(GroupNormOptions options) : options_(options) {}
  std::string_view kind() const override { return options_.groups == 0 ? "instance_norm" : "group_norm"; }
  NodeTraits traits() const override { return kNormTraits; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_channels(kind(), inputs);
    if (options_.groups < 0 || (options_.groups > 0 && in[-1] % options_.groups != 0))
      throw ShapeError(fmt::format("group_norm: {} groups do not divide the {} channels of {}", options_.groups, in[-1],
                                   to_string(in)));
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Affine affine(scope, {inputs[0][-1]}, options_.scale, options_.shift);
    const ops::GroupNormSettings settings{.groups = options_.groups == 0 ? inputs[0][-1] : options_.groups,
                                          .epsilon = options_.epsilon,
                                          .activation = {options_.activation.kind, options_.activation.slope}};
    return bind_function([affine, settings](const Context& context, const Tensor& x) {
      return ops::group_norm(context, x, Affine::value(affine.scale), Affine::value(affine.shift), settings);
    });
  }

 private:
  Described describe() const override { return options_; }
  GroupNormOptions options_;
};

}  // namespace

LayerPtr layer_norm(LayerNormOptions options) { return std::make_shared<LayerNormLayer>(options); }
LayerPtr group_norm(GroupNormOptions options) { return std::make_shared<GroupNormLayer>(options); }

namespace layers {
namespace {

float read_epsilon(ConfigMap& options, const ConfigKey& key, double otherwise) {
  return static_cast<float>(options.number(key, kNormEpsilon, otherwise));
}

/// Reads the options that group_norm and instance_norm share.
GroupNormOptions read_sample_norm(ConfigMap& options) {
  GroupNormOptions norm;
  norm.epsilon = read_epsilon(
      options, {"epsilon", "Added to the variance, against division by 0. PyTorch's default; Keras has 1e-3.", "1e-3"},
      1e-5);
  norm.scale = options.boolean(kNormScale, true);
  norm.shift = options.boolean(kNormShift, true);
  norm.activation = read_activation(options);
  return norm;
}

}  // namespace

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
  norm.scale = options.boolean(kNormScale, true);
  norm.shift = options.boolean(kNormShift, true);
  return layer_norm(norm);
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

}  // namespace layers
}  // namespace bantam
