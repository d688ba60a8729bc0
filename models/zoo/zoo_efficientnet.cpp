// EfficientNet-B0 (Tan and Le 2019): inverted residual blocks with squeeze-and-excitation, SiLU and stochastic depth.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_inverted_residual.h"

namespace bantam::models {
namespace {

/// `count` blocks, the first at `stride`.
struct EfficientNetStage {
  std::int64_t expansion, kernel, stride, filters;
  int count;
};
constexpr EfficientNetStage kEfficientNetStages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                                     {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                                     {6, 3, 1, 320, 1}};
constexpr int kEfficientNetBlocks = 16;
constexpr float kEfficientNetDropRate = 0.2f;  // of the classifier's dropout

}  // namespace

Graph efficientnet_b0(const ZooOptions& options) {
  const auto scaled = [&](std::int64_t channels) {
    return multiple_of_8(static_cast<double>(channels) * options.width);
  };
  const auto drop_path = static_cast<float>(options.drop_path);
  Graph graph(options.input);
  NodeId last =
      add_conv_norm(graph, "stem", graph.input(), {.filters = scaled(32), .stride = 2, .activation = Activation::silu});
  int number = 0;
  for (const EfficientNetStage& stage : kEfficientNetStages) {
    for (int i = 0; i < stage.count; ++i, ++number) {
      const std::int64_t channels = graph.node(last).output[2];
      last = add_inverted_residual(
          graph, last,
          {.name = fmt::format("stage{}_block{}", &stage - kEfficientNetStages + 1, i + 1),
           .expanded = stage.expansion * channels,
           .filters = scaled(stage.filters),
           .kernel = stage.kernel,
           .stride = i == 0 ? stage.stride : 1,
           .activation = Activation::silu,
           .squeeze_units = std::max<std::int64_t>(1, channels / 4),
           .squeeze_activation = Activation::silu,
           .drop_rate = drop_path * static_cast<float>(number) / static_cast<float>(kEfficientNetBlocks)});
    }
  }
  add_conv_norm(graph, "head", last,
                {.filters = 4 * graph.node(last).output[2], .kernel = 1, .activation = Activation::silu});
  graph.add("pool", global_average_pool());
  graph.add("dropout", dropout({.rate = kEfficientNetDropRate}));
  add_classifier(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
