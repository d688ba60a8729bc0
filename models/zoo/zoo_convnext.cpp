// ConvNeXt-T (Liu et al. 2022): blocks of a 7x7 depthwise convolution and two 1x1 convolutions, with layer
// normalisation, GELU, layer scale and stochastic depth.
#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

constexpr int kDepth[] = {3, 3, 9, 3};
constexpr int kConvNeXtBlocks = 18;
constexpr float kConvNeXtDropRate = 0.1f;  // of the last block; it grows from 0 linearly
const std::string kInitializer = "lecun_normal";

LayerPtr patch_conv(std::int64_t filters, std::int64_t size) {
  return conv2d({.filters = filters, .kernel = {size, size}, .stride = {size, size}, .initializer = kInitializer});
}

LayerPtr pointwise(std::int64_t filters, Activation activation) {
  return conv2d(
      {.filters = filters, .kernel = {1, 1}, .activation = {.kind = activation}, .initializer = kInitializer});
}

void add_block(Graph& graph, const std::string& name, float drop_rate) {
  const NodeId from = graph.output();
  const std::int64_t channels = graph.output_shape()[2];
  graph.add(name + "/depthwise",
            depthwise_conv2d({.kernel = {7, 7}, .padding = Padding::symmetric(3), .initializer = kInitializer}));
  graph.add(name + "/norm", layer_norm({.epsilon = 1e-6f}));
  graph.add(name + "/expand", pointwise(4 * channels, Activation::gelu));
  graph.add(name + "/project", pointwise(channels, Activation::none));
  NodeId last = graph.add(name + "/layer_scale", layer_scale({.initial = 1e-6f}));
  if (drop_rate > 0.0f) last = graph.add(name + "/drop_path", drop_path({.rate = drop_rate}));
  graph.add(name + "/add", add(), {last, from});
}

}  // namespace

Graph convnext_tiny(const ZooOptions& options) {
  Graph graph(options.input);
  graph.add("stem", patch_conv(96, 4));
  graph.add("stem_norm", layer_norm({.epsilon = 1e-6f}));
  int number = 0;
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0) {
      graph.add(fmt::format("downsample{}/norm", stage), layer_norm({.epsilon = 1e-6f}));
      graph.add(fmt::format("downsample{}/conv", stage), patch_conv(96 << stage, 2));
    }
    for (int i = 0; i < kDepth[stage]; ++i, ++number)
      add_block(graph, fmt::format("stage{}_block{}", stage + 1, i + 1),
                kConvNeXtDropRate * static_cast<float>(number) / static_cast<float>(kConvNeXtBlocks - 1));
  }
  graph.add("pool", global_average_pool());
  graph.add("norm", layer_norm({.epsilon = 1e-6f}));
  graph.add("classifier", dense({.units = options.classes, .initializer = kInitializer}));
  return graph;
}

}  // namespace bantam::models
