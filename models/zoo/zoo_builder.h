// Internal: the building blocks of the zoo's networks: convolutions with batch normalisation, classifiers, channels.
#pragma once

#include <cstdint>
#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::models {

/// Batch normalisation with PyTorch's defaults: new statistics count 0.1 (its "momentum").
struct TorchNorm {
  float epsilon = 1e-5f, rate = 0.1f;
};
inline LayerPtr torch_norm(Activation activation, TorchNorm norm = {}) {
  return batch_norm({.rate = norm.rate, .epsilon = norm.epsilon, .unbiased = true, .activation = {.kind = activation}});
}

/// A square convolution without bias, padded by kernel/2 on every side.
inline LayerPtr plain_conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride = 1) {
  return conv2d({.filters = filters,
                 .kernel = {kernel, kernel},
                 .stride = {stride, stride},
                 .padding = Padding::symmetric(kernel / 2),
                 .bias = false,
                 .initializer = "he_normal"});
}

struct ConvNorm {
  std::int64_t filters = 1, kernel = 3, stride = 1;
  Activation activation = Activation::relu;
  TorchNorm norm = {};
};

/// Adds the convolution `name` after node `from`, then its normalisation `name`_norm, then the activation; returns the
/// last node.
inline NodeId add_conv_norm(Graph& graph, const std::string& name, NodeId from, const ConvNorm& options) {
  const NodeId conv = graph.add(name, plain_conv(options.filters, options.kernel, options.stride), {from});
  return graph.add(name + "_norm", torch_norm(options.activation, options.norm), {conv});
}

/// The same of a depthwise convolution, which has as many filters as channels.
inline NodeId add_depthwise_norm(Graph& graph, const std::string& name, NodeId from, const ConvNorm& options) {
  const NodeId conv = graph.add(name,
                                depthwise_conv2d({.kernel = {options.kernel, options.kernel},
                                                  .stride = {options.stride, options.stride},
                                                  .padding = Padding::symmetric(options.kernel / 2),
                                                  .bias = false,
                                                  .initializer = "he_normal"}),
                                {from});
  return graph.add(name + "_norm", torch_norm(options.activation, options.norm), {conv});
}

/// A dense layer of a transformer, over the channels of tokens or pixels; its weights are normal of deviation 0.02, as
/// timm's.
inline LayerPtr linear(std::int64_t units, Activation activation = Activation::none) {
  return dense({.units = units, .activation = {.kind = activation}, .initializer = {"truncated_normal", 0.02f}});
}

/// Windows of 3x3 at stride 2, after the stems of networks for large images.
inline void add_stem_pool(Graph& graph) {
  graph.add("stem_pool", max_pool({.window = {3, 3}, .stride = {2, 2}, .padding = Padding::symmetric(1)}));
}

inline void add_classifier(Graph& graph, std::int64_t classes) {
  graph.add("classifier", dense({.units = classes, .initializer = "he_normal"}));
}

/// Mean over the image, then the classifier.
inline void add_head(Graph& graph, std::int64_t classes) {
  graph.add("pool", global_average_pool());
  add_classifier(graph, classes);
}

/// The multiple of 8 nearest to `channels` and not below 8, nor more than a tenth below `channels`: how mobile networks
/// of another width round.
std::int64_t multiple_of_8(double channels);

}  // namespace bantam::models
