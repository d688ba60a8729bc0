// ConvNeXt (Liu et al. 2022) and ConvNeXt V2 (Woo et al. 2023): blocks of a 7x7 depthwise convolution and two 1x1
// convolutions, with layer normalisation, GELU and stochastic depth. The first has layer scale, the second global
// response normalisation.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

struct ConvNeXt {
  std::int64_t channels;  ///< of the first stage; each of the others has twice as many
  int depth[4];           ///< blocks a stage
  bool response_norm;     ///< V2
  InitializerOptions initializer;
};

LayerPtr patch_conv(std::int64_t filters, std::int64_t size, const InitializerOptions& initializer) {
  return conv2d({.filters = filters, .kernel = {size, size}, .stride = {size, size}, .initializer = initializer});
}

LayerPtr pointwise(std::int64_t filters, Activation activation, const InitializerOptions& initializer) {
  return conv2d({.filters = filters, .kernel = {1, 1}, .activation = {.kind = activation}, .initializer = initializer});
}

void add_convnext_block(Graph& graph, const std::string& name, const ConvNeXt& network, float drop_rate) {
  const NodeId from = graph.output();
  const std::int64_t channels = graph.output_shape()[2];
  graph.add(name + "/depthwise",
            depthwise_conv2d({.kernel = {7, 7}, .padding = Padding::symmetric(3), .initializer = network.initializer}));
  graph.add(name + "/norm", layer_norm({.epsilon = 1e-6f}));
  graph.add(name + "/expand", pointwise(4 * channels, Activation::gelu, network.initializer));
  if (network.response_norm) graph.add(name + "/response_norm", global_response_norm());
  NodeId last = graph.add(name + "/project", pointwise(channels, Activation::none, network.initializer));
  if (!network.response_norm) last = graph.add(name + "/layer_scale", layer_scale({.initial = 1e-6f}));
  if (drop_rate > 0.0f) last = graph.add(name + "/drop_path", drop_path({.rate = drop_rate}));
  graph.add(name + "/add", add(), {last, from});
}

Graph build_convnext(const ZooOptions& options, const ConvNeXt& network) {
  const auto drop_path = static_cast<float>(options.drop_path);
  int blocks = 0, number = 0;
  for (const int depth : network.depth) blocks += depth;
  Graph graph(options.input);
  graph.add("stem", patch_conv(network.channels, 4, network.initializer));
  graph.add("stem_norm", layer_norm({.epsilon = 1e-6f}));
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0) {
      graph.add(fmt::format("downsample{}/norm", stage), layer_norm({.epsilon = 1e-6f}));
      graph.add(fmt::format("downsample{}/conv", stage), patch_conv(network.channels << stage, 2, network.initializer));
    }
    for (int i = 0; i < network.depth[stage]; ++i, ++number)
      add_convnext_block(graph, fmt::format("stage{}_block{}", stage + 1, i + 1), network,
                         drop_path * static_cast<float>(number) / static_cast<float>(blocks - 1));
  }
  graph.add("pool", global_average_pool());
  graph.add("norm", layer_norm({.epsilon = 1e-6f}));
  graph.add("classifier", dense({.units = options.classes, .initializer = network.initializer}));
  return graph;
}

const InitializerOptions kConvNeXtV2Weights{"truncated_normal", 0.02f};  // as timm's

}  // namespace

Graph convnext_tiny(const ZooOptions& options) {
  return build_convnext(options, {96, {3, 3, 9, 3}, false, "lecun_normal"});
}

Graph convnextv2_atto(const ZooOptions& options) {
  return build_convnext(options, {40, {2, 2, 6, 2}, true, kConvNeXtV2Weights});
}

Graph convnextv2_tiny(const ZooOptions& options) {
  return build_convnext(options, {96, {3, 3, 9, 3}, true, kConvNeXtV2Weights});
}

}  // namespace bantam::models
