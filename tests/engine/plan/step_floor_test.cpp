// The least work of a step, counted by hand.
#include "bantam/engine/plan/step_floor.h"

#include <gtest/gtest.h>

#include "bantam/engine/layers/layers.h"

namespace bantam::step_floor_test {
namespace {

constexpr double kParameters = 1000;

TEST(StepFloorTest, ACountByHand) {
  Graph graph({4, 4, 2});
  graph.add("conv",
            conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}));  // 128 values, 18·2·128 flops
  graph.add("relu", activation({Activation::relu}));
  graph.add("pool", max_pool());  // 32 values
  graph.add("flat", flatten());
  graph.add("dense", dense({.units = 10}));
  const StepWork work = least_step_work(graph, 3, {PrecisionKind::mixed_float16}, 1000, 2);
  const double conv = 18 * 2 * 128, dense = 2 * 32 * 10;
  EXPECT_DOUBLE_EQ(work.flops, 3 * (2 * conv + 3 * dense));
  // conv: 32 in, 32 out (pooled), no gradient of the batch; dense: 32 in and its gradient, 10 out.
  const double values = (2 * 32 + 2 * 32) + (3 * 32 + 2 * 10);
  EXPECT_DOUBLE_EQ(work.bytes, 3 * 2 * values + kParameters * (32 + 2));
}

TEST(StepFloorTest, ANormKeepsWhatItsInputIs) {
  Graph graph({4, 4, 2});
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}));
  graph.add("norm", batch_norm());
  graph.add("pool", max_pool());
  graph.add("flat", flatten());
  const StepWork work = least_step_work(graph, 1, {}, 0, 0);
  EXPECT_DOUBLE_EQ(work.bytes, 4.0 * (2 * 32 + 2 * 128));
}

}  // namespace
}  // namespace bantam::step_floor_test
