// Residual networks (He et al. 2016): of basic and of bottleneck blocks, for small and for large images.
#include <vector>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

/// One block: where it stands, how wide it is, and how it strides.
struct ResidualBlock {
  std::string name;
  NodeId from = 0;
  std::int64_t channels = 64;  ///< of the 3x3 convolutions
  std::int64_t stride = 1;
  bool project = false;  ///< the shortcut needs a 1x1 convolution: size or channels change
};

NodeId join_shortcut(Graph& graph, const ResidualBlock& block, NodeId body, std::int64_t channels) {
  NodeId shortcut = block.from;
  if (block.project)
    shortcut =
        add_conv_norm(graph, block.name + "/shortcut", block.from,
                      {.filters = channels, .kernel = 1, .stride = block.stride, .activation = Activation::none});
  return graph.add(block.name + "/add", add({.kind = Activation::relu}), {body, shortcut});
}

NodeId basic_block(Graph& graph, const ResidualBlock& block) {
  const NodeId first =
      add_conv_norm(graph, block.name + "/conv1", block.from, {.filters = block.channels, .stride = block.stride});
  const NodeId second =
      add_conv_norm(graph, block.name + "/conv2", first, {.filters = block.channels, .activation = Activation::none});
  return join_shortcut(graph, block, second, block.channels);
}

NodeId bottleneck_block(Graph& graph, const ResidualBlock& block) {
  const std::int64_t out = 4 * block.channels;
  const NodeId reduce =
      add_conv_norm(graph, block.name + "/conv1", block.from, {.filters = block.channels, .kernel = 1});
  const NodeId middle =
      add_conv_norm(graph, block.name + "/conv2", reduce, {.filters = block.channels, .stride = block.stride});
  const NodeId expand = add_conv_norm(graph, block.name + "/conv3", middle,
                                      {.filters = out, .kernel = 1, .activation = Activation::none});
  return join_shortcut(graph, block, expand, out);
}

/// Stages of `depth[i]` blocks; the first block of each but the first halves the image and doubles the channels.
struct Stages {
  std::vector<int> depth;
  bool bottleneck = false;
  std::int64_t channels = 64;  ///< of the first stage
};

void add_stages(Graph& graph, const Stages& stages) {
  std::int64_t channels = stages.channels;
  NodeId last = graph.output();
  for (std::size_t stage = 0; stage < stages.depth.size(); ++stage, channels *= 2) {
    for (int i = 0; i < stages.depth[stage]; ++i) {
      ResidualBlock block{fmt::format("stage{}_block{}", stage + 1, i + 1), last, channels};
      block.stride = i == 0 && stage > 0 ? 2 : 1;
      block.project = i == 0 && (stage > 0 || stages.bottleneck);
      last = stages.bottleneck ? bottleneck_block(graph, block) : basic_block(graph, block);
    }
  }
}

/// For large images: a 7x7 stem and a max-pool, each at stride 2.
Graph large_resnet(const ZooOptions& options, const Stages& stages) {
  Graph graph(options.input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = 64, .kernel = 7, .stride = 2});
  add_stem_pool(graph);
  add_stages(graph, stages);
  add_head(graph, options.classes);
  return graph;
}

/// For small images: a 3x3 stem at stride 1.
Graph small_resnet(const ZooOptions& options, const Stages& stages) {
  Graph graph(options.input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = stages.channels});
  add_stages(graph, stages);
  add_head(graph, options.classes);
  return graph;
}

}  // namespace

Graph resnet18_cifar(const ZooOptions& options) { return small_resnet(options, {{2, 2, 2, 2}}); }
Graph resnet20(const ZooOptions& options) { return small_resnet(options, {{3, 3, 3}, false, 16}); }
Graph resnet56(const ZooOptions& options) { return small_resnet(options, {{9, 9, 9}, false, 16}); }
Graph resnet18(const ZooOptions& options) { return large_resnet(options, {{2, 2, 2, 2}}); }
Graph resnet34(const ZooOptions& options) { return large_resnet(options, {{3, 4, 6, 3}}); }
Graph resnet50(const ZooOptions& options) { return large_resnet(options, {{3, 4, 6, 3}, true}); }
Graph resnet101(const ZooOptions& options) { return large_resnet(options, {{3, 4, 23, 3}, true}); }

}  // namespace bantam::models
