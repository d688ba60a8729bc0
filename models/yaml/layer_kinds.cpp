// Readers of layer kinds: YAML keys to the engine's options. Names and defaults are Keras' unless a comment says
// otherwise.
#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"
#include "bantam/models/yaml/network.h"

namespace bantam::models {
namespace {

const ConfigKey kMultiplier{"multiplier",
                            "Filters of each channel: the depthwise part has channels × multiplier outputs.", "2"};

LayerPtr read_conv2d(ConfigMap& options) {
  options.describe("Convolution over (height, width, channels).",
                   "conv2d: {filters: 64, kernel: 3, padding: same, bias: false, activation: relu}");
  Conv2dOptions conv;
  conv.filters = options.integer({"filters", "Channels of the output.", "64"}, kCount);
  conv.kernel = read_extent(options, kKernel);
  conv.stride = read_extent(options, kStride, {1, 1});
  conv.dilation = read_extent(options, kDilation, {1, 1});
  conv.padding = read_padding(options);
  conv.padding_mode = read_padding_mode(options, "padding_mode");
  conv.groups = options.integer(kGroups, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  read_initializer(options, conv);
  return conv2d(conv);
}

LayerPtr read_depthwise_conv2d(ConfigMap& options) {
  options.describe("Convolution of each channel with filters of its own.",
                   "depthwise_conv2d: {kernel: 3, stride: 2, padding: same, bias: false}");
  DepthwiseConv2dOptions conv;
  conv.kernel = read_extent(options, kKernel);
  conv.stride = read_extent(options, kStride, {1, 1});
  conv.dilation = read_extent(options, kDilation, {1, 1});
  conv.padding = read_padding(options);
  conv.multiplier = options.integer(kMultiplier, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return depthwise_conv2d(conv);
}

LayerPtr read_separable_conv2d(ConfigMap& options) {
  options.describe(
      "Depthwise convolution without bias, then a 1 × 1 convolution with bias and activation, as Keras' "
      "SeparableConv2D.",
      "separable_conv2d: {filters: 64, kernel: 3, activation: relu}");
  SeparableConv2dOptions conv;
  conv.filters = options.integer({"filters", "Channels of the output.", "64"}, kCount);
  conv.kernel = read_extent(options, kKernel);
  conv.stride = read_extent(options, kStride, {1, 1});
  conv.dilation = read_extent(options, kDilation, {1, 1});
  conv.padding = read_padding(options);
  conv.multiplier = options.integer(kMultiplier, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return separable_conv2d(conv);
}

LayerPtr read_dense(ConfigMap& options) {
  options.describe("A matrix product with a bias: y = activation(x·Wᵀ + b). Its input has one axis: flatten first.",
                   "dense: {units: 10}");
  DenseOptions layer;
  layer.units = options.integer({"units", "Values of the output.", "10"}, kCount);
  layer.bias = options.boolean(kBias, true);
  layer.activation = read_activation(options);
  layer.initializer = read_initializer(options);
  return dense(layer);
}

/// How fast the running statistics move may be said Keras' way (momentum: the share that stays) or PyTorch's (rate: the
/// share that is new, which PyTorch calls momentum). Nothing where neither is.
std::optional<float> read_running_rate(ConfigMap& options) {
  const ConfigKey kRate{"rate",
                        "Share of a batch's statistics in the running statistics, which PyTorch calls momentum. In "
                        "place of `momentum`.",
                        "0.1", "1 - momentum"};
  if (!options.has(kRate)) {
    const ConfigNode momentum = options.node(
        {"momentum",
         "Share of the running statistics that stays at each batch, as in Keras: 0.9 is PyTorch's 0.1. auto: 0.99, and "
         "in the first updates less, updates / (updates + 10), so that the statistics of a short run are those of its "
         "last batches.",
         "0.9"},
        "auto");
    if (momentum.is_text("auto")) return std::nullopt;
    return static_cast<float>(1.0 - momentum.as_number({.min = 0, .max = 1, .max_open = true}));
  }
  if (options.has("momentum"))
    options.node("momentum").fail_at_key("give momentum (Keras: what stays) or rate (PyTorch: what is new), not both");
  return static_cast<float>(options.number(kRate, {.min = 0, .max = 1, .min_open = true}));
}

LayerPtr read_batch_norm(ConfigMap& options) {
  options.describe(
      "Batch normalisation over the last axis: y = activation(scale · (x - mean) / √(variance + epsilon) + shift). "
      "Training uses the batch's statistics, evaluation the running ones.",
      "batch_norm: {momentum: 0.9, activation: relu}");
  BatchNormOptions norm;
  norm.rate = read_running_rate(options);
  // Smaller ones would be lost beside any variance, and the smallest are 0 in float32.
  norm.epsilon = static_cast<float>(
      options.number({"epsilon", "Added to the variance, against division by 0. Keras' default; PyTorch has 1e-5."},
                     {.min = 1e-12, .max = 1}, 1e-3));
  norm.unbiased = options.boolean(
      {"unbiased",
       "true: the running variance is that of a sample (n - 1), as PyTorch and Keras' fused kernel have it. false: n."},
      true);
  norm.scale = options.boolean({"scale", "Whether a trained factor a channel is there (γ)."}, true);
  norm.shift = options.boolean({"shift", "Whether a trained value a channel is added (β)."}, true);
  norm.activation = read_activation(options);
  return batch_norm(norm);
}

PoolOptions read_pool(ConfigMap& options) {
  PoolOptions pool;
  pool.window = read_extent(
      options, {"size", "Extents of the window: one number for both, or [height, width].", "3 | [2, 4]"}, {2, 2});
  pool.stride =
      read_extent(options, {kStride.name, kStride.meaning, kStride.example, "the window's `size`"}, pool.window);
  pool.dilation = read_extent(
      options, {"dilation", "Step between the window's values: one number for both, or [height, width].", "2"}, {1, 1});
  pool.padding = read_padding(options);
  pool.ceil_mode = options.boolean(
      {"ceil_mode",
       "true: the last windows may end outside the padded image, where they begin inside the image or the padding "
       "before it, as PyTorch's. false: values that fill no window are left out."},
      false);
  return pool;
}

LayerPtr read_max_pool(ConfigMap& options) {
  options.describe("The largest value of each window, channel by channel.", "max_pool: {size: 2}");
  return max_pool(read_pool(options));
}

LayerPtr read_average_pool(ConfigMap& options) {
  options.describe("The mean of each window, channel by channel.", "average_pool: {size: 2}");
  PoolOptions pool = read_pool(options);
  pool.count_padding = options.boolean(
      {"count_padding",
       "true: padding counts as zeros in the mean, PyTorch's default (count_include_pad). false: only the image's "
       "own values count, as in Keras."},
      false);
  return average_pool(pool);
}

DropoutOptions read_rate(ConfigMap& options, ConfigKey key) {
  return {.rate = static_cast<float>(options.number(key, {.min = 0, .max = 1, .max_open = true}))};
}

LayerPtr read_dropout(ConfigMap& options) {
  options.describe("Sets values to 0 at random in training and scales the others by 1 / (1 - rate).",
                   "dropout: {rate: 0.5}");
  return dropout(read_rate(options, {"rate", "Share of values that become 0.", "0.5"}));
}

LayerPtr read_spatial_dropout(ConfigMap& options) {
  options.describe(
      "Sets whole channels of a sample to 0 at random in training and scales the others by 1 / (1 - rate), as Keras' "
      "SpatialDropout2D and PyTorch's Dropout2d.",
      "spatial_dropout: {rate: 0.2}");
  return spatial_dropout(read_rate(options, {"rate", "Share of channels that become 0.", "0.2"}));
}

LayerPtr read_drop_path(ConfigMap& options) {
  options.describe(
      "Sets whole samples to 0 at random in training and scales the others by 1 / (1 - rate): at the end of a residual "
      "block's branch, stochastic depth.",
      "drop_path: {rate: 0.1}");
  return drop_path(read_rate(options, {"rate", "Share of samples that become 0.", "0.1"}));
}

constexpr NumberRange kFactor{.min = -1e3, .max = 1e3};
constexpr NumberRange kScale{.min = -1e9, .max = 1e9};  // of outputs that are prices or counts

LayerPtr read_prelu(ConfigMap& options) {
  options.describe("x where it is positive, slope · x below, with trained slopes.", "prelu: {initial: 0.25}");
  PReluOptions layer;
  layer.initial = static_cast<float>(options.number({"initial", "Slopes at the start.", "0.1"}, kFactor, 0.25));
  layer.shared =
      options.boolean({"shared", "true: one slope for all channels, PyTorch's default. false: one a channel."}, false);
  return prelu(layer);
}

LayerPtr read_layer_scale(ConfigMap& options) {
  options.describe("A trained factor a channel: y = scale · x. Small at the start, at the end of a residual branch.",
                   "layer_scale: {initial: 1e-6}");
  return layer_scale(
      {.initial = static_cast<float>(options.number({"initial", "Factors at the start.", "0.1"}, kScale, 1e-6))});
}

LayerPtr read_softmax(ConfigMap& options) {
  options.describe(
      "exp(x) / Σ exp(x) over the last axis. Losses of class labels compute it themselves: a classifier ends without "
      "it.",
      "softmax");
  return softmax();
}

LayerPtr read_reshape(ConfigMap& options) {
  options.describe("The same values in the same order under another shape. Copies nothing.",
                   "reshape: {shape: [7, 7, -1]}");
  return reshape(
      {.shape = options.integers(
           {"shape", "Extents without the batch's. One of them may be -1: the rest of the values.", "[7, 7, -1]"},
           {.min = -1, .max = std::int64_t{1} << 40})});
}

GlobalPoolOptions read_global_pool(ConfigMap& options) {
  return {.keepdims = options.boolean(
              {"keepdims", "true: (1, 1, channels), to be multiplied with an image or convolved. false: (channels)."},
              false)};
}

LayerPtr read_global_average_pool(ConfigMap& options) {
  options.describe("The mean of each channel: (height, width, channels) to (channels).", "global_average_pool");
  return global_average_pool(read_global_pool(options));
}

LayerPtr read_global_max_pool(ConfigMap& options) {
  options.describe("The largest value of each channel: (height, width, channels) to (channels).", "global_max_pool");
  return global_max_pool(read_global_pool(options));
}

LayerPtr read_flatten(ConfigMap& options) {
  options.describe("All values in one axis, as dense layers need them. Copies nothing.", "flatten");
  return flatten();
}

LayerPtr read_add(ConfigMap& options) {
  options.describe("The sum of its inputs, which have one shape, then the activation.",
                   "add: {inputs: [input, conv2d], activation: relu}");
  return add(read_activation(options));
}

template <Activation kKind>
LayerPtr read_activation_layer(ConfigMap& options) {
  return activation(read_activation_options(kKind, options));
}

Kinds activation_kinds() {
  return {{"relu", read_activation_layer<Activation::relu>},
          {"relu6", read_activation_layer<Activation::relu6>},
          {"leaky_relu", read_activation_layer<Activation::leaky_relu>},
          {"gelu", read_activation_layer<Activation::gelu>},
          {"silu", read_activation_layer<Activation::silu>},
          {"sigmoid", read_activation_layer<Activation::sigmoid>},
          {"tanh", read_activation_layer<Activation::tanh>},
          {"elu", read_activation_layer<Activation::elu>},
          {"selu", read_activation_layer<Activation::selu>},
          {"mish", read_activation_layer<Activation::mish>},
          {"hard_swish", read_activation_layer<Activation::hard_swish>},
          {"hard_sigmoid", read_activation_layer<Activation::hard_sigmoid>},
          {"softplus", read_activation_layer<Activation::softplus>}};
}

}  // namespace

Registry<Reader<LayerPtr>>& layer_kinds() {
  static Registry<Reader<LayerPtr>> table("layer", {{"conv2d", read_conv2d},
                                                    {"depthwise_conv2d", read_depthwise_conv2d},
                                                    {"separable_conv2d", read_separable_conv2d},
                                                    {"dense", read_dense},
                                                    {"batch_norm", read_batch_norm},
                                                    {"max_pool", read_max_pool},
                                                    {"average_pool", read_average_pool},
                                                    {"global_average_pool", read_global_average_pool},
                                                    {"global_max_pool", read_global_max_pool},
                                                    {"dropout", read_dropout},
                                                    {"spatial_dropout", read_spatial_dropout},
                                                    {"drop_path", read_drop_path},
                                                    {"prelu", read_prelu},
                                                    {"layer_scale", read_layer_scale},
                                                    {"softmax", read_softmax},
                                                    {"flatten", read_flatten},
                                                    {"reshape", read_reshape},
                                                    {"add", read_add}});
  static const bool complete = [] {
    for (Kinds (*kinds)() : {activation_kinds, image_kinds, norm_kinds, join_kinds})
      for (auto& [name, read] : kinds()) table.add(name, read);
    return true;
  }();
  (void)complete;
  return table;
}

}  // namespace bantam::models
