// MobileNet v1: a stem and thirteen depthwise-separable blocks, each convolution followed by normalisation and ReLU.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

struct Stage {
  std::int64_t filters, stride;
};
constexpr Stage kStages[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                             {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};

}  // namespace

Graph mobilenet_v1(const ZooOptions& options) {
  const auto scaled = [&](std::int64_t channels) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(channels) * options.width));
  };
  Graph graph(options.input);
  NodeId last = add_conv_norm(graph, "stem", graph.input(), {.filters = scaled(32), .stride = 2});
  int number = 0;
  for (const Stage& stage : kStages) {
    const std::string block = fmt::format("block{}", ++number);
    const NodeId depthwise = graph.add(block + "/depthwise",
                                       depthwise_conv2d({.stride = {stage.stride, stage.stride},
                                                         .padding = Padding::symmetric(1),
                                                         .bias = false,
                                                         .initializer = "he_normal"}),
                                       {last});
    const NodeId norm = graph.add(block + "/depthwise_norm", torch_norm(Activation::relu), {depthwise});
    last = add_conv_norm(graph, block + "/pointwise", norm, {.filters = scaled(stage.filters), .kernel = 1});
  }
  add_head(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
