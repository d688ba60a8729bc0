// Internal: the building blocks of the zoo's networks with batch normalisation.
#pragma once

#include <cstdint>
#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::models {

/// Batch normalisation with PyTorch's defaults, which the peers' networks have: epsilon 1e-5, new statistics count 0.1.
inline LayerPtr torch_norm(Activation activation) {
  return batch_norm({.rate = 0.1f, .epsilon = 1e-5f, .unbiased = true, .activation = {.kind = activation}});
}

/// A square convolution without bias, padded by kernel/2 on every side.
struct ConvNorm {
  std::int64_t filters = 1, kernel = 3, stride = 1;
  Activation activation = Activation::relu;
};

/// Adds the convolution `name` after node `from`, then its normalisation `name`_norm, then the activation; returns the
/// last node.
inline NodeId add_conv_norm(Graph& graph, const std::string& name, NodeId from, const ConvNorm& options) {
  const NodeId conv = graph.add(name,
                                conv2d({.filters = options.filters,
                                        .kernel = {options.kernel, options.kernel},
                                        .stride = {options.stride, options.stride},
                                        .padding = Padding::symmetric(options.kernel / 2),
                                        .bias = false,
                                        .initializer = "he_normal"}),
                                {from});
  return graph.add(name + "_norm", torch_norm(options.activation), {conv});
}

/// Mean over the image, then the classifier.
inline void add_head(Graph& graph, std::int64_t classes) {
  graph.add("pool", global_average_pool());
  graph.add("classifier", dense({.units = classes, .initializer = "he_normal"}));
}

}  // namespace bantam::models
