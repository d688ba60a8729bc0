// ShuffleNet V2 (Ma et al. 2018): blocks that change half of the channels, and interleave the halves.
#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

struct ShuffleNetStage {
  int count;
  std::int64_t filters;
};
constexpr ShuffleNetStage kShuffleNetStages[] = {{4, 116}, {8, 232}, {4, 464}};

/// The branch that every block has: 1x1, depthwise, 1x1 convolution.
NodeId add_shuffle_branch(Graph& graph, const std::string& name, NodeId from, std::int64_t filters,
                          std::int64_t stride) {
  NodeId last = add_conv_norm(graph, name + "/expand", from, {.filters = filters, .kernel = 1});
  last = add_depthwise_norm(graph, name + "/depthwise", last, {.stride = stride, .activation = Activation::none});
  return add_conv_norm(graph, name + "/project", last, {.filters = filters, .kernel = 1});
}

/// A stage's first block halves the image, and has a second branch of the whole input.
void add_shuffle_block(Graph& graph, const std::string& name, std::int64_t filters, bool is_first) {
  const NodeId from = graph.output();
  const std::int64_t half = filters / 2;
  NodeId left = 0, right = from;
  if (is_first) {
    left = add_depthwise_norm(graph, name + "/shortcut_depthwise", from, {.stride = 2, .activation = Activation::none});
    left = add_conv_norm(graph, name + "/shortcut", left, {.filters = half, .kernel = 1});
  } else {
    left = graph.add(name + "/left", channel_slice({.begin = 0, .end = half}), {from});
    right = graph.add(name + "/right", channel_slice({.begin = half, .end = filters}), {from});
  }
  right = add_shuffle_branch(graph, name, right, half, is_first ? 2 : 1);
  graph.add(name + "/concat", concat(), {left, right});
  graph.add(name + "/shuffle", channel_shuffle({.groups = 2}));
}

}  // namespace

Graph shufflenet_v2_x1_0(const ZooOptions& options) {
  Graph graph(options.input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = 24, .stride = 2});
  add_stem_pool(graph);
  int number = 0;
  for (const ShuffleNetStage& stage : kShuffleNetStages) {
    ++number;
    for (int i = 0; i < stage.count; ++i)
      add_shuffle_block(graph, fmt::format("stage{}_block{}", number, i + 1), stage.filters, i == 0);
  }
  add_conv_norm(graph, "head", graph.output(), {.filters = 1024, .kernel = 1});
  add_head(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
