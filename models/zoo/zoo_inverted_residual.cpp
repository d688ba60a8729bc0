// The inverted residual block, and how channels of mobile networks round.
#include "bantam/models/zoo/zoo_inverted_residual.h"

#include <algorithm>

namespace bantam::models {

std::int64_t multiple_of_8(double channels) {
  const std::int64_t nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4.0) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

NodeId add_inverted_residual(Graph& graph, NodeId from, const InvertedResidual& block) {
  const std::int64_t channels = graph.node(from).output[2];
  ConvNorm conv{.filters = block.expanded, .kernel = 1, .activation = block.activation, .norm = block.norm};
  NodeId last = from;
  if (block.expanded != channels) last = add_conv_norm(graph, block.name + "/expand", last, conv);
  conv.kernel = block.kernel;
  conv.stride = block.stride;
  last = add_depthwise_norm(graph, block.name + "/depthwise", last, conv);
  if (block.squeeze_units > 0)
    last = graph.add(block.name + "/squeeze_excite",
                     squeeze_excite({.units = block.squeeze_units,
                                     .activation = {.kind = block.squeeze_activation},
                                     .gate = block.gate,
                                     .initializer = "he_normal"}),
                     {last});
  last = add_conv_norm(graph, block.name + "/project", last,
                       {.filters = block.filters, .kernel = 1, .activation = Activation::none, .norm = block.norm});
  if (block.stride != 1 || block.filters != channels) return last;
  if (block.drop_rate > 0.0f) last = graph.add(block.name + "/drop_path", drop_path({.rate = block.drop_rate}), {last});
  return graph.add(block.name + "/add", add(), {last, from});
}

}  // namespace bantam::models
