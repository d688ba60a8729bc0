// Units of layer-wise learning rates: blocks, the stem before them, and the last layer.
#include "bantam/engine/graph/layer_depth.h"

#include <gtest/gtest.h>

#include "bantam/engine/layers/layers.h"
#include "bantam/engine/model/frozen_norms.h"

namespace bantam::layer_depth_test {
namespace {

using Units = std::vector<int>;

LayerPtr same_conv() { return conv2d({.filters = 4, .padding = Padding::same(), .bias = false}); }

std::vector<int> units_of(const Graph& graph) { return units_after(graph, parameter_names(graph)); }

TEST(LayerDepth, CountsBlocksFromTheLastLayer) {
  Graph graph({8, 8, 4});
  graph.add("stem", same_conv());        // scale of the stem: both layers are one unit
  graph.add("stem_norm", layer_norm());  // two parameters
  graph.add("block1/conv", same_conv());
  graph.add("block1/norm", layer_norm());
  graph.add("block2/pool", max_pool({}));  // without parameters
  graph.add("block3/conv", same_conv());
  graph.add("between", same_conv());  // belongs to block3
  graph.add("block4/conv", same_conv());
  graph.add("pool", global_average_pool());
  graph.add("norm", layer_norm());  // belongs to block4
  graph.add("classifier", dense({.units = 3}));
  EXPECT_EQ(units_of(graph), (Units{4, 4, 4, 3, 3, 3, 2, 2, 1, 1, 1, 0, 0}));
  const std::vector<float> scales = layer_decay_scales(graph, parameter_names(graph), 0.5f);
  EXPECT_EQ(scales, (std::vector<float>{0.0625f, 0.0625f, 0.0625f, 0.125f, 0.125f, 0.125f, 0.25f, 0.25f, 0.5f, 0.5f,
                                        0.5f, 1.0f, 1.0f}));
}

TEST(LayerDepth, WithoutBlocksEachLayerIsAUnit) {
  Graph graph({8, 8, 4});
  graph.add("first", same_conv());
  graph.add("second", same_conv());
  graph.add("pool", global_average_pool());
  graph.add("squeeze", dense({.units = 3}));
  EXPECT_EQ(units_of(graph), (Units{2, 1, 0, 0}));
}

TEST(LayerDepth, TheFirstAndTheLastLayerMayBeBlocks) {
  Graph graph({8, 8, 4});
  graph.add("a/conv", same_conv());
  graph.add("b/conv", same_conv());
  graph.add("b/pool", global_average_pool());
  graph.add("b/dense", dense({.units = 3}));
  EXPECT_EQ(units_of(graph), (Units{1, 0, 0, 0}));
}

// A layer of its own parts, "gate/reduce/weight", is no block.
TEST(LayerDepth, PartsOfALayerAreNotABlock) {
  Graph graph({8, 8, 4});
  graph.add("stem", same_conv());
  graph.add("gate", squeeze_excite({.units = 2}));
  graph.add("block/conv", same_conv());
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 3}));
  EXPECT_EQ(units_of(graph), (Units{2, 2, 2, 2, 2, 1, 0, 0}));
}

}  // namespace
}  // namespace bantam::layer_depth_test
