// MobileNet v3 (Howard et al. 2019): inverted residual blocks with squeeze-and-excitation and hard swish.
#include <span>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_inverted_residual.h"

namespace bantam::models {
namespace {

constexpr TorchNorm kNorm{.epsilon = 1e-3f, .rate = 0.01f};
constexpr Activation kRelu = Activation::relu, kSwish = Activation::hard_swish;

struct MobileNetV3Stage {
  std::int64_t kernel, expanded, filters;
  bool squeeze;
  Activation activation;
  std::int64_t stride;
};
constexpr MobileNetV3Stage kSmall[] = {
    {3, 16, 16, true, kRelu, 2},   {3, 72, 24, false, kRelu, 2},  {3, 88, 24, false, kRelu, 1},
    {5, 96, 40, true, kSwish, 2},  {5, 240, 40, true, kSwish, 1}, {5, 240, 40, true, kSwish, 1},
    {5, 120, 48, true, kSwish, 1}, {5, 144, 48, true, kSwish, 1}, {5, 288, 96, true, kSwish, 2},
    {5, 576, 96, true, kSwish, 1}, {5, 576, 96, true, kSwish, 1}};
constexpr MobileNetV3Stage kLarge[] = {
    {3, 16, 16, false, kRelu, 1},   {3, 64, 24, false, kRelu, 2},   {3, 72, 24, false, kRelu, 1},
    {5, 72, 40, true, kRelu, 2},    {5, 120, 40, true, kRelu, 1},   {5, 120, 40, true, kRelu, 1},
    {3, 240, 80, false, kSwish, 2}, {3, 200, 80, false, kSwish, 1}, {3, 184, 80, false, kSwish, 1},
    {3, 184, 80, false, kSwish, 1}, {3, 480, 112, true, kSwish, 1}, {3, 672, 112, true, kSwish, 1},
    {5, 672, 160, true, kSwish, 2}, {5, 960, 160, true, kSwish, 1}, {5, 960, 160, true, kSwish, 1}};

/// `hidden`: units of the dense layer before the classifier.
Graph mobilenet_v3(const ZooOptions& options, std::span<const MobileNetV3Stage> stages, std::int64_t hidden) {
  const auto scaled = [&](std::int64_t channels) {
    return multiple_of_8(static_cast<double>(channels) * options.width);
  };
  Graph graph(options.input);
  NodeId last = add_conv_norm(graph, "stem", graph.input(),
                              {.filters = scaled(16), .stride = 2, .activation = kSwish, .norm = kNorm});
  int number = 0;
  for (const MobileNetV3Stage& stage : stages) {
    const std::int64_t expanded = scaled(stage.expanded), quarter = expanded / 4;
    last = add_inverted_residual(graph, last,
                                 {.name = fmt::format("block{}", ++number),
                                  .expanded = expanded,
                                  .filters = scaled(stage.filters),
                                  .kernel = stage.kernel,
                                  .stride = stage.stride,
                                  .activation = stage.activation,
                                  .norm = kNorm,
                                  .squeeze_units = stage.squeeze ? multiple_of_8(static_cast<double>(quarter)) : 0,
                                  .gate = Activation::hard_sigmoid});
  }
  add_conv_norm(graph, "head", last,
                {.filters = 6 * graph.node(last).output[2], .kernel = 1, .activation = kSwish, .norm = kNorm});
  graph.add("pool", global_average_pool());
  graph.add("hidden", dense({.units = scaled(hidden), .activation = {.kind = kSwish}, .initializer = "he_normal"}));
  graph.add("dropout", dropout({.rate = 0.2f}));
  add_classifier(graph, options.classes);
  return graph;
}

}  // namespace

Graph mobilenet_v3_small(const ZooOptions& options) { return mobilenet_v3(options, kSmall, 1024); }
Graph mobilenet_v3_large(const ZooOptions& options) { return mobilenet_v3(options, kLarge, 1280); }

}  // namespace bantam::models
