// Vision transformers (Dosovitskiy et al. 2021) and DeiT III (Touvron et al. 2022): patches as tokens, and blocks of
// attention and of an MLP that normalise before each.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

struct Vit {
  std::int64_t patch, channels, heads;
  int depth;
  bool deit3 = false;  ///< positions are added before the class token comes, and branches have layer scale
};

LayerPtr vit_norm() { return layer_norm({.epsilon = 1e-6f}); }

/// Ends the branch that began at `from` with the sum; `number` is 1 for attention, 2 for the MLP.
void add_sum(Graph& graph, const std::string& name, int number, NodeId from, const Vit& vit, float drop_rate) {
  if (vit.deit3) graph.add(fmt::format("{}/layer_scale{}", name, number), layer_scale({.initial = 1e-6f}));
  if (drop_rate > 0.0f) graph.add(fmt::format("{}/drop_path{}", name, number), drop_path({.rate = drop_rate}));
  graph.add(fmt::format("{}/add{}", name, number), add(), {graph.output(), from});
}

/// After the last block the class token alone is read: of that block's tokens only the first goes on once attention has
/// read all.
void add_vit_block(Graph& graph, const std::string& name, const Vit& vit, float drop_rate, bool is_last) {
  NodeId from = graph.output();
  graph.add(name + "/norm1", vit_norm());
  graph.add(name + "/qkv", linear(3 * vit.channels));
  graph.add(name + "/attention", attention({.heads = vit.heads}));
  if (is_last) {
    const SliceOptions first{.axis = 0, .start = 0, .stop = 1};
    const NodeId attended = graph.output();
    from = graph.add(name + "/slice", slice(first), {from});
    graph.add(name + "/slice_attention", slice(first), {attended});
  }
  graph.add(name + "/project", linear(vit.channels));
  add_sum(graph, name, 1, from, vit, drop_rate);
  from = graph.output();
  graph.add(name + "/norm2", vit_norm());
  graph.add(name + "/expand", linear(4 * vit.channels, Activation::gelu));
  graph.add(name + "/contract", linear(vit.channels));
  add_sum(graph, name, 2, from, vit, drop_rate);
}

Graph build_vit(const ZooOptions& options, const Vit& vit) {
  const Shape& input = options.input;
  if (input.rank() != 3 || input[0] % vit.patch != 0 || input[1] % vit.patch != 0)
    throw ShapeError(fmt::format("expected images (height, width, channels) of sides that are multiples of {}, got {}",
                                 vit.patch, to_string(input)));
  const auto drop_path = static_cast<float>(options.drop_path);
  Graph graph(input);
  graph.add("stem", conv2d({.filters = vit.channels,
                            .kernel = {vit.patch, vit.patch},
                            .stride = {vit.patch, vit.patch},
                            .initializer = "fan_in_uniform"}));
  if (vit.deit3) graph.add("position_embedding", position_embedding());
  graph.add("class_token", class_token());
  if (!vit.deit3) graph.add("position_embedding", position_embedding());
  for (int i = 0; i < vit.depth; ++i)
    add_vit_block(graph, fmt::format("block{}", i + 1), vit,
                  drop_path * static_cast<float>(i) / static_cast<float>(vit.depth - 1), i + 1 == vit.depth);
  graph.add("flatten", flatten());
  graph.add("norm", vit_norm());
  graph.add("classifier", linear(options.classes));
  return graph;
}

}  // namespace

Graph vit_tiny_16(const ZooOptions& options) { return build_vit(options, {16, 192, 3, 12}); }
Graph vit_small_16(const ZooOptions& options) { return build_vit(options, {16, 384, 6, 12}); }
Graph vit_base_16(const ZooOptions& options) { return build_vit(options, {16, 768, 12, 12}); }
Graph vit_base_32(const ZooOptions& options) { return build_vit(options, {32, 768, 12, 12}); }
Graph vit_large_16(const ZooOptions& options) { return build_vit(options, {16, 1024, 16, 24}); }
Graph deit3_small_16(const ZooOptions& options) { return build_vit(options, {16, 384, 6, 12, true}); }
Graph deit3_base_16(const ZooOptions& options) { return build_vit(options, {16, 768, 12, 12, true}); }

}  // namespace bantam::models
