// Wide residual networks (Zagoruyko and Komodakis 2016): three stages of blocks that normalise before they convolve.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

struct WideBlock {
  std::string name;
  std::int64_t channels = 16, stride = 1;
};

/// The sum of two 3x3 convolutions, each of normalised values, and the block's input. Where the channels change, the
/// shortcut is a 1x1 convolution of what the first convolution reads.
NodeId add_block(Graph& graph, NodeId from, const WideBlock& block) {
  const bool project = graph.node(from).output[2] != block.channels || block.stride != 1;
  const NodeId norm1 = graph.add(block.name + "/norm1", torch_norm(Activation::relu), {from});
  graph.add(block.name + "/conv1", plain_conv(block.channels, 3, block.stride), {norm1});
  graph.add(block.name + "/norm2", torch_norm(Activation::relu));
  const NodeId body = graph.add(block.name + "/conv2", plain_conv(block.channels, 3));
  NodeId shortcut = from;
  if (project) shortcut = graph.add(block.name + "/shortcut", plain_conv(block.channels, 1, block.stride), {norm1});
  return graph.add(block.name + "/add", add(), {body, shortcut});
}

}  // namespace

Graph wide_resnet28_10(const ZooOptions& options) {
  constexpr int kBlocks = (28 - 4) / 6;
  const auto scaled = [&](int stage) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(160 << stage) * options.width));
  };
  Graph graph(options.input);
  NodeId last = graph.add("stem", plain_conv(16, 3));
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < kBlocks; ++i)
      last = add_block(graph, last,
                       {fmt::format("stage{}_block{}", stage + 1, i + 1), scaled(stage), i == 0 && stage > 0 ? 2 : 1});
  graph.add("norm", torch_norm(Activation::relu));
  add_head(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
