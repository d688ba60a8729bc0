// MobileNet v1: a stem and thirteen depthwise-separable blocks, each convolution followed by normalisation and ReLU;
// and v2: a stem, seventeen inverted residual blocks, and a 1x1 convolution.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_inverted_residual.h"

namespace bantam::models {
namespace {

struct MobileNetStage {
  std::int64_t filters, stride;
};
constexpr MobileNetStage kMobileNetStages[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                                               {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};

/// Blocks of MobileNet v2: `count` of them, the first at `stride`.
struct Blocks {
  std::int64_t expansion, filters;
  int count;
  std::int64_t stride;
};
constexpr Blocks kBlocksV2[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

}  // namespace

Graph mobilenet_v1(const ZooOptions& options) {
  const auto scaled = [&](std::int64_t channels) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(channels) * options.width));
  };
  Graph graph(options.input);
  NodeId last = add_conv_norm(graph, "stem", graph.input(), {.filters = scaled(32), .stride = 2});
  int number = 0;
  for (const MobileNetStage& stage : kMobileNetStages) {
    const std::string block = fmt::format("block{}", ++number);
    const NodeId norm = add_depthwise_norm(graph, block + "/depthwise", last, {.stride = stage.stride});
    last = add_conv_norm(graph, block + "/pointwise", norm, {.filters = scaled(stage.filters), .kernel = 1});
  }
  add_head(graph, options.classes);
  return graph;
}

Graph mobilenet_v2(const ZooOptions& options) {
  Graph graph(options.input);
  NodeId last =
      add_conv_norm(graph, "stem", graph.input(),
                    {.filters = multiple_of_8(32 * options.width), .stride = 2, .activation = Activation::relu6});
  int number = 0;
  for (const Blocks& blocks : kBlocksV2)
    for (int i = 0; i < blocks.count; ++i)
      last = add_inverted_residual(graph, last,
                                   {.name = fmt::format("block{}", ++number),
                                    .expanded = blocks.expansion * graph.node(last).output[2],
                                    .filters = multiple_of_8(static_cast<double>(blocks.filters) * options.width),
                                    .stride = i == 0 ? blocks.stride : 1});
  add_conv_norm(
      graph, "head", last,
      {.filters = multiple_of_8(1280 * std::max(1.0, options.width)), .kernel = 1, .activation = Activation::relu6});
  graph.add("pool", global_average_pool());
  graph.add("dropout", dropout({.rate = 0.2f}));
  add_classifier(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
