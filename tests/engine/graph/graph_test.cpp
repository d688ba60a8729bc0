// Graphs: names, shapes, and lowering to segments.
#include "bantam/engine/graph/graph.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/model/lower.h"
#include "tests/cpu_seconds.h"

namespace bantam::graph_test {
namespace {

Graph residual() {
  Graph graph({8, 8, 4});
  const NodeId x = graph.add("stem", conv2d({.filters = 4, .padding = Padding::same()}));
  const NodeId a = graph.add("block/a", conv2d({.filters = 4, .padding = Padding::same()}), {x});
  const NodeId b = graph.add("block/b", batch_norm(), {a});
  graph.add("block/add", add(), {b, x});
  graph.add("head", global_average_pool());
  return graph;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GraphTest, NamesOfManyLayersAreMadeInSeconds) {
  Graph graph({2});
  const double seconds = testing::cpu_seconds([&] {  // processor time: the machine may be busy
    for (int i = 0; i < 20'000; ++i) graph.add(activation({.kind = Activation::relu}));
  });
  EXPECT_LT(seconds, 5);
  EXPECT_EQ(graph.nodes().back().name, "activation_20000");
}

TEST(GraphTest, TheOnlyReaderOfANodeIsKnownAtOnce) {
  Graph graph({4});
  const NodeId a = graph.add("a", activation({.kind = Activation::relu}), {0});
  const NodeId b = graph.add("b", activation({.kind = Activation::relu}), {a});
  const NodeId sum = graph.add("sum", add(), {a, b});
  const NodeId twice = graph.add("twice", add(), {sum, sum});
  EXPECT_THROW(graph.add("gone", add(), {b, 99}), ShapeError);  // which reads nothing
  EXPECT_EQ(graph.only_reader(0), a);
  EXPECT_EQ(graph.only_reader(a), 0) << "b and sum read it";
  EXPECT_EQ(graph.only_reader(b), sum);
  EXPECT_EQ(graph.only_reader(sum), 0) << "it is read twice by one node";
  EXPECT_EQ(graph.only_reader(twice), 0) << "nothing reads it";
  EXPECT_EQ(Graph(graph).only_reader(b), sum);
  Graph chain({2});
  for (int i = 0; i < 100'000; ++i) chain.add(activation({.kind = Activation::relu}));
  const double seconds = testing::cpu_seconds([&] {
    for (NodeId node = 0; node < chain.output(); ++node) ASSERT_EQ(chain.only_reader(node), node + 1);
  });
  EXPECT_LT(seconds, 2) << "5·10^9 comparisons need more";
}

TEST(GraphTest, NamesAreMadeAndChecked) {
  Graph graph({8, 8, 3});
  graph.add(conv2d({.filters = 4}));
  graph.add(conv2d({.filters = 4}));
  EXPECT_EQ(graph.nodes()[1].name, "conv2d");
  EXPECT_EQ(graph.nodes()[2].name, "conv2d_2");
  EXPECT_EQ(graph.output_shape(), (Shape{4, 4, 4}));
  EXPECT_EQ(error_of([&] { graph.add("conv2d", flatten()); }), "two layers are named 'conv2d'");
  EXPECT_EQ(error_of([&] { graph.add("d", dense({.units = 0})); }),
            "layer 'd': dense: units must be at least 1, got 0");
  EXPECT_EQ(error_of([&] {
              graph.add("big", conv2d({.filters = 2, .kernel = {5, 5}}));
            }),
            "layer 'big': conv2d: a window of 5x5 does not fit an input of 4x4 with padding 0+0, 0+0");
  EXPECT_THROW(graph.add("pool", max_pool({.padding = Padding::symmetric(2)})), ShapeError);
  EXPECT_EQ(graph.nodes().size(), 3u);  // failed additions add nothing
}

TEST(GraphTest, SamePaddingIsKeras) {
  // Keras: ⌈in/stride⌉; 224 with kernel 3, stride 2 pads 0 on top and 1 below.
  const Window2d window{.kernel = {3, 3}, .stride = {2, 2}, .padding = Padding::same()};
  EXPECT_EQ(window.resolve("test", 224, 7), (Padding{PaddingKind::explicit_, 0, 1, 1, 1}));
  Graph graph({224, 7, 3});
  graph.add(conv2d({.filters = 4, .kernel = {3, 3}, .stride = {2, 2}, .padding = Padding::same()}));
  EXPECT_EQ(graph.output_shape(), (Shape{112, 4, 4}));
}

TEST(LowerTest, OneSegmentANodeWithoutRecompute) {
  const auto segments = lower(residual(), {}).segments;
  ASSERT_EQ(segments.size(), 5u);
  EXPECT_FALSE(segments[1].recompute);
  EXPECT_EQ(segments[3].inputs, (std::vector<NodeId>{1, 3}));
}

TEST(LowerTest, AllMakesBlocksOneSegment) {
  const auto segments = lower(residual(), {.kind = RecomputeOptions::Kind::all}).segments;
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1].first, 2);
  EXPECT_EQ(segments[1].last, 4);
  EXPECT_TRUE(segments[1].recompute);
  EXPECT_EQ(segments[1].inputs, (std::vector<NodeId>{1}));
}

TEST(LowerTest, NamesChooseLayersOrBlocks) {
  const auto block = lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"block"}}).segments;
  ASSERT_EQ(block.size(), 3u);
  EXPECT_TRUE(block[1].recompute);
  EXPECT_FALSE(block[0].recompute);
  const auto layer = lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"block/a", "head"}}).segments;
  ASSERT_EQ(layer.size(), 5u);
  EXPECT_TRUE(layer[1].recompute);
  EXPECT_TRUE(layer[4].recompute);
  EXPECT_FALSE(layer[2].recompute);
  EXPECT_EQ(lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"block", "block/a"}}).segments.size(),
            3u);
  EXPECT_EQ(error_of([] { (void)lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"blok"}}); }),
            "recompute: no layer or block is named 'blok'; did you mean 'block'?");
}

TEST(LowerTest, ABlockOfWhichMoreThanOneValueIsReadOutsideIsRefusedByName) {
  Graph graph({4, 4, 2});
  const NodeId a = graph.add("block/a", conv2d({.filters = 2, .padding = Padding::same()}));
  const NodeId b = graph.add("block/b", conv2d({.filters = 2, .padding = Padding::same()}));
  graph.add("sum", add(), {a, b});
  EXPECT_EQ(error_of([&] { (void)lower(graph, {.kind = RecomputeOptions::Kind::named, .names = {"block"}}); }),
            "recompute: more than one value is read outside block 'block'; name layers within it");
  EXPECT_EQ(lower(graph, {.kind = RecomputeOptions::Kind::all}).segments.size(), 3u);  // layer by layer instead
}

TEST(LowerTest, RangesAreOneSegment) {
  const auto named = [](std::vector<std::string> names) {
    return RecomputeOptions{.kind = RecomputeOptions::Kind::named, .names = std::move(names)};
  };
  const auto segment = lower(residual(), named({"stem..block"})).segments;
  ASSERT_EQ(segment.size(), 2u);
  EXPECT_TRUE(segment[0].recompute);
  EXPECT_EQ(segment[0].last, 4);
  EXPECT_EQ(segment[0].inputs, (std::vector<NodeId>{0}));
  const auto layers =
      lower(residual(), named({"block/a..block/b", "block/b"})).segments;  // the second is inside the first
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[1].first, 2);
  EXPECT_EQ(layers[1].last, 3);
  EXPECT_EQ(error_of([&] { (void)lower(residual(), named({"stem..blok"})); }),
            "recompute: no layer or block is named 'blok'; did you mean 'block'?");
  EXPECT_EQ(error_of([&] { (void)lower(residual(), named({"head..stem"})); }),
            "recompute: the segment 'head..stem' ends before it begins");
  EXPECT_EQ(error_of([&] { (void)lower(residual(), named({"stem..block/a"})); }),
            "recompute: more than one value is read outside segment 'stem..block/a'; name layers within it");
  EXPECT_EQ(error_of([&] {
              (void)lower(residual(), named({"block/a..block/b", "block/b..head"}));
            }),
            "recompute: 'block/a..block/b' and 'block/b..head' overlap");
  EXPECT_EQ(error_of([&] {
              (void)lower(residual(), named({"stem..block", "block..head"}));
            }),
            "recompute: 'stem..block' and 'block..head' overlap");
}

/// Operations that stand for several layers.
std::size_t fused(const ProgramSegment& segment) {
  return static_cast<std::size_t>(
      std::ranges::count_if(segment.nodes, [](const NodePlan& plan) { return plan.last > plan.first; }));
}

TEST(LowerTest, AFusionIsOneSegmentAndIsNeverCutByASegment) {
  const std::vector<Fusion> fusions{{.first = 2, .last = 3}};  // block/a and block/b
  const auto once = lower(residual(), {}, fusions).segments;
  ASSERT_EQ(once.size(), 4u);
  EXPECT_EQ(once[1].first, 2);
  EXPECT_EQ(once[1].last, 3);
  EXPECT_FALSE(once[1].recompute);
  EXPECT_EQ(fused(once[1]), 1u);
  EXPECT_EQ(fused(once[0]) + fused(once[2]), 0u);
  const auto cut = lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"block/b"}}, fusions).segments;
  ASSERT_EQ(cut.size(), 4u);
  EXPECT_TRUE(cut[1].recompute);
  EXPECT_EQ(cut[1].first, 2);
  EXPECT_EQ(fused(cut[1]), 1u);
  const auto both =
      lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"block/a", "block/b"}}, fusions).segments;
  EXPECT_EQ(both.size(), 4u);  // one segment
  const auto inside = lower(residual(), {.kind = RecomputeOptions::Kind::named, .names = {"block"}}, fusions).segments;
  ASSERT_EQ(inside.size(), 3u);
  EXPECT_EQ(fused(inside[1]), 1u);
}

// Fusions that begin in one block and end in the next must not make one segment of all the blocks.
TEST(LowerTest, AFusionThatTwoSegmentsCutIsTheFirstOnes) {
  Graph graph({8, 8, 3});
  for (const std::string block : {"one", "two", "three"}) {
    graph.add(block + "/conv", conv2d({.filters = 3}));
    graph.add(block + "/norm", batch_norm());
  }
  const std::vector<Fusion> fusions{{.first = 2, .last = 3}, {.first = 4, .last = 5}};  // norm and the conv after it
  for (const RecomputeOptions& options :
       {RecomputeOptions{.kind = RecomputeOptions::Kind::all},
        RecomputeOptions{.kind = RecomputeOptions::Kind::named, .names = {"one", "two", "three"}}}) {
    const auto segments = lower(graph, options, fusions).segments;
    ASSERT_EQ(segments.size(), 3u);
    constexpr NodeId kLast[] = {3, 5, 6};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(segments[i].recompute);
      EXPECT_EQ(segments[i].last, kLast[i]);
      EXPECT_EQ(fused(segments[i]), i < 2 ? 1u : 0u);
    }
  }
}

}  // namespace
}  // namespace bantam::graph_test
