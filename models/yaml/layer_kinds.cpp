// Readers of layer kinds: YAML keys to the engine's options. Names and defaults are Keras' unless a comment says
// otherwise.
#include "bantam/models/yaml/layer_options.h"
#include "bantam/models/yaml/network.h"

namespace bantam::models {
namespace {

constexpr IntegerRange kCount{.min = 1, .max = 1 << 24};

LayerPtr read_conv2d(ConfigMap& options) {
  Conv2dOptions conv;
  conv.filters = options.integer("filters", kCount);
  conv.kernel = read_extent(options, "kernel");
  conv.stride = read_extent(options, "stride", {1, 1});
  conv.dilation = read_extent(options, "dilation", {1, 1});
  conv.padding = read_padding(options);
  conv.groups = options.integer("groups", kCount, 1);
  conv.bias = options.boolean("bias", true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return conv2d(conv);
}

LayerPtr read_depthwise_conv2d(ConfigMap& options) {
  DepthwiseConv2dOptions conv;
  conv.kernel = read_extent(options, "kernel");
  conv.stride = read_extent(options, "stride", {1, 1});
  conv.dilation = read_extent(options, "dilation", {1, 1});
  conv.padding = read_padding(options);
  conv.multiplier = options.integer("multiplier", kCount, 1);
  conv.bias = options.boolean("bias", true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return depthwise_conv2d(conv);
}

LayerPtr read_separable_conv2d(ConfigMap& options) {
  SeparableConv2dOptions conv;
  conv.filters = options.integer("filters", kCount);
  conv.kernel = read_extent(options, "kernel");
  conv.stride = read_extent(options, "stride", {1, 1});
  conv.dilation = read_extent(options, "dilation", {1, 1});
  conv.padding = read_padding(options);
  conv.multiplier = options.integer("multiplier", kCount, 1);
  conv.bias = options.boolean("bias", true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return separable_conv2d(conv);
}

LayerPtr read_dense(ConfigMap& options) {
  DenseOptions layer;
  layer.units = options.integer("units", kCount);
  layer.bias = options.boolean("bias", true);
  layer.activation = read_activation(options);
  layer.initializer = read_initializer(options);
  return dense(layer);
}

/// How fast the running statistics move may be said Keras' way (momentum: the share that stays) or PyTorch's (rate: the
/// share that is new, which PyTorch calls momentum).
float read_running_rate(ConfigMap& options) {
  if (!options.has("rate"))
    return static_cast<float>(1.0 - options.number("momentum", {.min = 0, .max = 1, .max_open = true}, 0.99));
  if (options.has("momentum"))
    options.node("momentum").fail_at_key("give momentum (Keras: what stays) or rate (PyTorch: what is new), not both");
  return static_cast<float>(options.number("rate", {.min = 0, .max = 1, .min_open = true}));
}

LayerPtr read_batch_norm(ConfigMap& options) {
  BatchNormOptions norm;
  norm.rate = read_running_rate(options);
  // Smaller ones would be lost beside any variance, and the smallest are 0 in float32.
  norm.epsilon = static_cast<float>(options.number("epsilon", {.min = 1e-12, .max = 1}, 1e-3));
  norm.unbiased = options.boolean("unbiased", true);
  norm.scale = options.boolean("scale", true);
  norm.shift = options.boolean("shift", true);
  norm.activation = read_activation(options);
  return batch_norm(norm);
}

PoolOptions read_pool(ConfigMap& options) {
  PoolOptions pool;
  pool.window = read_extent(options, "size", {2, 2});
  pool.stride = read_extent(options, "stride", pool.window);
  pool.padding = read_padding(options);
  return pool;
}

LayerPtr read_max_pool(ConfigMap& options) { return max_pool(read_pool(options)); }

LayerPtr read_average_pool(ConfigMap& options) {
  PoolOptions pool = read_pool(options);
  pool.count_padding = options.boolean("count_padding", false);
  return average_pool(pool);
}

LayerPtr read_dropout(ConfigMap& options) {
  return dropout({.rate = static_cast<float>(options.number("rate", {.min = 0, .max = 1, .max_open = true}))});
}

LayerPtr read_reshape(ConfigMap& options) {
  return reshape({.shape = options.integers("shape", {.min = -1, .max = std::int64_t{1} << 40})});
}

template <Activation kKind>
LayerPtr read_activation_layer(ConfigMap& options) {
  return activation(read_activation_options(kKind, options));
}

}  // namespace

Registry<Reader<LayerPtr>>& layer_kinds() {
  static Registry<Reader<LayerPtr>> table("layer",
                                          {
                                              {"conv2d", read_conv2d},
                                              {"depthwise_conv2d", read_depthwise_conv2d},
                                              {"separable_conv2d", read_separable_conv2d},
                                              {"dense", read_dense},
                                              {"batch_norm", read_batch_norm},
                                              {"max_pool", read_max_pool},
                                              {"average_pool", read_average_pool},
                                              {"global_average_pool", [](ConfigMap&) { return global_average_pool(); }},
                                              {"global_max_pool", [](ConfigMap&) { return global_max_pool(); }},
                                              {"dropout", read_dropout},
                                              {"flatten", [](ConfigMap&) { return flatten(); }},
                                              {"reshape", read_reshape},
                                              {"relu", read_activation_layer<Activation::relu>},
                                              {"relu6", read_activation_layer<Activation::relu6>},
                                              {"leaky_relu", read_activation_layer<Activation::leaky_relu>},
                                              {"gelu", read_activation_layer<Activation::gelu>},
                                              {"silu", read_activation_layer<Activation::silu>},
                                              {"sigmoid", read_activation_layer<Activation::sigmoid>},
                                              {"tanh", read_activation_layer<Activation::tanh>},
                                          });
  return table;
}

}  // namespace bantam::models
