// Residual networks: ResNet-18 for small images and ResNet-50 v1.5.
#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

/// One block: where it stands, how wide it is, and how it strides.
struct Block {
  std::string name;
  NodeId from = 0;
  std::int64_t channels = 64;  ///< of the 3x3 convolutions
  std::int64_t stride = 1;
  bool project = false;  ///< the shortcut needs a 1x1 convolution: size or channels change
};

NodeId join_shortcut(Graph& graph, const Block& block, NodeId body, std::int64_t channels) {
  NodeId shortcut = block.from;
  if (block.project)
    shortcut =
        add_conv_norm(graph, block.name + "/shortcut", block.from,
                      {.filters = channels, .kernel = 1, .stride = block.stride, .activation = Activation::none});
  return graph.add(block.name + "/add", add({.kind = Activation::relu}), {body, shortcut});
}

NodeId basic_block(Graph& graph, const Block& block) {
  const NodeId first =
      add_conv_norm(graph, block.name + "/conv1", block.from, {.filters = block.channels, .stride = block.stride});
  const NodeId second =
      add_conv_norm(graph, block.name + "/conv2", first, {.filters = block.channels, .activation = Activation::none});
  return join_shortcut(graph, block, second, block.channels);
}

NodeId bottleneck_block(Graph& graph, const Block& block) {
  const std::int64_t out = 4 * block.channels;
  const NodeId reduce =
      add_conv_norm(graph, block.name + "/conv1", block.from, {.filters = block.channels, .kernel = 1});
  const NodeId middle =
      add_conv_norm(graph, block.name + "/conv2", reduce, {.filters = block.channels, .stride = block.stride});
  const NodeId expand = add_conv_norm(graph, block.name + "/conv3", middle,
                                      {.filters = out, .kernel = 1, .activation = Activation::none});
  return join_shortcut(graph, block, expand, out);
}

/// Four stages of `depth[i]` blocks; the first block of each but the first halves the image.
void add_stages(Graph& graph, const int (&depth)[4], bool bottleneck) {
  std::int64_t channels = 64;
  NodeId last = graph.output();
  for (int stage = 0; stage < 4; ++stage, channels *= 2) {
    for (int i = 0; i < depth[stage]; ++i) {
      Block block{fmt::format("stage{}_block{}", stage + 1, i + 1), last, channels};
      block.stride = i == 0 && stage > 0 ? 2 : 1;
      block.project = i == 0 && (stage > 0 || bottleneck);
      last = bottleneck ? bottleneck_block(graph, block) : basic_block(graph, block);
    }
  }
}

}  // namespace

Graph resnet18_cifar(const ZooOptions& options) {
  Graph graph(options.input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = 64});
  add_stages(graph, {2, 2, 2, 2}, false);
  add_head(graph, options.classes);
  return graph;
}

Graph resnet50(const ZooOptions& options) {
  Graph graph(options.input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = 64, .kernel = 7, .stride = 2});
  graph.add("stem_pool", max_pool({.window = {3, 3}, .stride = {2, 2}, .padding = Padding::symmetric(1)}));
  add_stages(graph, {3, 4, 6, 3}, true);
  add_head(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
