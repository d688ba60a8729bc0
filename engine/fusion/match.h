// Shared by patterns of fusion: the options of the layers that they match, and the parameters of those that they bind.
#pragma once

#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/conv2d.h"

namespace bantam::fusion {

/// The options of a node's layer; null where it has others, or there is no such node.
template <class Options>
const Options* options_at(const Graph& graph, NodeId node) {
  return node <= graph.output() ? graph.node(node).layer->options<Options>() : nullptr;
}

/// The options of a max pooling; null where the node is none.
inline const PoolOptions* max_pool_at(const Graph& graph, NodeId node) {
  const auto* options = options_at<PoolOptions>(graph, node);
  return options != nullptr && graph.node(node).layer->kind() == "max_pool" ? options : nullptr;
}

/// The window of a convolution.
template <class Options>
Window2d window_of(const Options& options) {
  return {options.kernel, options.stride, options.dilation, options.padding};
}
inline Window2d window_of(const PoolOptions& options) {
  return {options.window, options.stride, options.dilation, options.padding};
}

/// The shape of a convolution of one sample.
inline kernels::Conv2dShape conv2d_shape_at(const Graph& graph, NodeId node, const Conv2dOptions& options) {
  return ops::conv2d_shape(graph.input_shapes(node)[0].prepend(1), options.filters, window_of(options), options.groups);
}

/// The batch norm of a node, whose parameters and buffers are declared under its name.
inline BoundNorm norm_at(const Graph& graph, NodeId node, ParameterArena& parameters, BufferArena& buffers) {
  const std::string& name = graph.node(node).name;
  return {*options_at<BatchNormOptions>(graph, node), parameters.find(name + "/scale"),
          parameters.find(name + "/shift"),           *buffers.find(name + "/running_mean"),
          *buffers.find(name + "/running_variance"),  buffers};
}

}  // namespace bantam::fusion
