// MobileViT-S (Mehta and Rastegari 2022): inverted residual blocks, and blocks in which each of the four pixels of a
// 2x2 patch attends to those at the same place of all other patches.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_inverted_residual.h"

namespace bantam::models {
namespace {

constexpr std::int64_t kMobileVitHeads = 4, kMobileVitPatch = 2, kMobileVitStep = 32 * kMobileVitPatch;

/// Attention among the pixels of each place in the patches. The places are joined as channels, and become pixels again.
NodeId add_patch_attention(Graph& graph, const std::string& name, NodeId from) {
  std::vector<NodeId> places;
  for (std::int64_t row = 0; row < kMobileVitPatch; ++row) {
    const NodeId rows = graph.add(fmt::format("{}/rows{}", name, row + 1),
                                  slice({.axis = 0, .start = row, .step = kMobileVitPatch}), {from});
    for (std::int64_t column = 0; column < kMobileVitPatch; ++column) {
      const std::string place = fmt::format("{}/place{}", name, places.size() + 1);
      graph.add(place, slice({.axis = 1, .start = column, .step = kMobileVitPatch}), {rows});
      places.push_back(graph.add(place + "_attention", attention({.heads = kMobileVitHeads})));
    }
  }
  graph.add(name + "/concat", concat(), places);
  return graph.add(name + "/pixels", depth_to_space({.block = kMobileVitPatch}));
}

void add_transformer(Graph& graph, const std::string& name, std::int64_t channels) {
  NodeId from = graph.output();
  graph.add(name + "/norm1", layer_norm({.epsilon = 1e-5f}));
  add_patch_attention(graph, name, graph.add(name + "/qkv", linear(3 * channels)));
  graph.add(name + "/project", linear(channels));
  from = graph.add(name + "/add1", add(), {graph.output(), from});
  graph.add(name + "/norm2", layer_norm({.epsilon = 1e-5f}));
  graph.add(name + "/expand", linear(2 * channels, Activation::silu));
  graph.add(name + "/contract", linear(channels));
  graph.add(name + "/add2", add(), {graph.output(), from});
}

void add_mobilevit_block(Graph& graph, const std::string& name, std::int64_t channels, int depth) {
  const NodeId from = graph.output();
  const std::int64_t filters = graph.output_shape()[2];
  add_conv_norm(graph, name + "/local", from, {.filters = filters, .activation = Activation::silu});
  graph.add(name + "/enter", plain_conv(channels, 1));
  for (int i = 0; i < depth; ++i) add_transformer(graph, fmt::format("{}/transformer{}", name, i + 1), channels);
  graph.add(name + "/norm", layer_norm({.epsilon = 1e-5f}));
  const NodeId left = add_conv_norm(graph, name + "/leave", graph.output(),
                                    {.filters = filters, .kernel = 1, .activation = Activation::silu});
  graph.add(name + "/concat", concat(), {from, left});
  add_conv_norm(graph, name + "/fuse", graph.output(), {.filters = filters, .activation = Activation::silu});
}

/// `count` inverted residual blocks, the first at `stride`; after them transformers of `channels`, if any.
struct MobileVitStage {
  std::int64_t filters, stride;
  int count;
  std::int64_t channels;
  int depth;
};
constexpr MobileVitStage kMobileVitStages[] = {
    {32, 1, 1, 0, 0}, {64, 2, 3, 0, 0}, {96, 2, 1, 144, 2}, {128, 2, 1, 192, 4}, {160, 2, 1, 240, 3}};

}  // namespace

Graph mobilevit_s(const ZooOptions& options) {
  const Shape& input = options.input;
  if (input.rank() != 3 || input[0] % kMobileVitStep != 0 || input[1] % kMobileVitStep != 0)
    throw ShapeError(fmt::format("expected images (height, width, channels) of sides that are multiples of {}, got {}",
                                 kMobileVitStep, to_string(input)));
  Graph graph(input);
  add_conv_norm(graph, "stem", graph.input(), {.filters = 16, .stride = 2, .activation = Activation::silu});
  int number = 0;
  for (const MobileVitStage& stage : kMobileVitStages) {
    ++number;
    for (int i = 0; i < stage.count; ++i)
      add_inverted_residual(graph, graph.output(),
                            {.name = fmt::format("stage{}_block{}", number, i + 1),
                             .expanded = 4 * graph.output_shape()[2],
                             .filters = stage.filters,
                             .stride = i == 0 ? stage.stride : 1,
                             .activation = Activation::silu});
    if (stage.depth > 0)
      add_mobilevit_block(graph, fmt::format("stage{}_block{}", number, stage.count + 1), stage.channels, stage.depth);
  }
  add_conv_norm(graph, "head", graph.output(), {.filters = 640, .kernel = 1, .activation = Activation::silu});
  add_head(graph, options.classes);
  return graph;
}

}  // namespace bantam::models
