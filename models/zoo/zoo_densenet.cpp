// DenseNet (Huang et al. 2017): every layer of a block reads the outputs of all before it.
#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

constexpr std::int64_t kGrowth = 32;  // channels that a layer adds

/// Adds kGrowth channels, by a 1x1 and a 3x3 convolution of normalised values, to those of the last node.
void add_dense_layer(Graph& graph, const std::string& name) {
  const NodeId from = graph.output();
  graph.add(name + "/norm1", torch_norm(Activation::relu));
  graph.add(name + "/conv1", plain_conv(4 * kGrowth, 1));
  graph.add(name + "/norm2", torch_norm(Activation::relu));
  const NodeId grown = graph.add(name + "/conv2", plain_conv(kGrowth, 3));
  graph.add(name + "/concat", concat(), {from, grown});
}

/// Half the channels, and half the height and width.
void add_transition(Graph& graph, const std::string& name) {
  const std::int64_t channels = graph.output_shape()[2];
  graph.add(name + "/norm", torch_norm(Activation::relu));
  graph.add(name + "/conv", plain_conv(channels / 2, 1));
  graph.add(name + "/pool", average_pool({}));
}

}  // namespace

Graph densenet121(const ZooOptions& options) {
  constexpr int kDepth[] = {6, 12, 24, 16};
  Graph graph(options.input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = 64, .kernel = 7, .stride = 2});
  add_stem_pool(graph);
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0) add_transition(graph, fmt::format("transition{}", stage));
    for (int i = 0; i < kDepth[stage]; ++i) add_dense_layer(graph, fmt::format("stage{}_block{}", stage + 1, i + 1));
  }
  graph.add("norm", torch_norm(Activation::relu));
  add_head(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
