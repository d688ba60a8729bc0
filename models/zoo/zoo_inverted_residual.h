// Internal: the inverted residual block of mobile networks (Sandler et al. 2018): a 1x1 convolution to more channels, a
// depthwise convolution, squeeze-and-excitation, and a 1x1 convolution to few channels.
#pragma once

#include <cstdint>
#include <string>

#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {

struct InvertedResidual {
  std::string name;
  std::int64_t expanded = 1;  ///< channels of the depthwise convolution; as many as the input's: nothing expands
  std::int64_t filters = 1, kernel = 3, stride = 1;
  Activation activation = Activation::relu6;
  TorchNorm norm = {};
  std::int64_t squeeze_units = 0;  ///< of squeeze_excite; 0: there is none
  Activation squeeze_activation = Activation::relu, gate = Activation::sigmoid;
  float drop_rate = 0.0f;  ///< of the branch, where the block has a shortcut: stochastic depth
};

/// Adds the block after node `from` and returns its last node. The input is added where the shape stays.
NodeId add_inverted_residual(Graph& graph, NodeId from, const InvertedResidual& block);

}  // namespace bantam::models
