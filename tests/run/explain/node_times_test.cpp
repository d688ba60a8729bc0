// Times of a step by node: they add up to the step, name every layer, and are near what the step takes unlooked at.
#include "bantam/run/explain/node_times.h"

#include <algorithm>
#include <numeric>

#include "bantam/engine/step/random_batch.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::run::node_times_test {
namespace {

using kernels::KernelPhase;

class NodeTimesTest : public testing::EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(NodeTimesTest);

Graph network() {
  Graph graph({32, 32, 16});
  graph.add("conv", conv2d({.filters = 32, .padding = Padding::same(), .bias = false}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

double seconds_of(const StepTimes& times, const std::string& owner, KernelPhase phase) {
  const auto found = std::ranges::find_if(
      times.nodes, [&](const NodeTime& node) { return node.owner == owner && node.phase == phase; });
  return found == times.nodes.end() ? 0 : found->seconds;
}

TEST_P(NodeTimesTest, PartitionTheStep) {
  Model model(runtime(), device(), network(), {.precision = parse_precision("auto", device())});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {64}});
  const Batch batch = random_batch(model, 64, philox_key(1, RandomPurpose::dataset));
  const StepTimes times = measure_node_times(step, batch, 1);
  double sum = times.between_kernels + times.between_updates;
  for (const NodeTime& node : times.nodes) sum += node.seconds;
  EXPECT_NEAR(sum, times.step_seconds, 1e-6 * times.step_seconds);
  for (const char* layer : {"conv", "norm", "pool", "head"}) {
    EXPECT_GT(seconds_of(times, layer, KernelPhase::forward), 0) << layer;
    EXPECT_GT(seconds_of(times, layer, KernelPhase::backward), 0) << layer;
  }
  EXPECT_GT(seconds_of(times, "optimizer", KernelPhase::update), 0);
  EXPECT_GT(times.untraced_seconds, 0);
  EXPECT_LT(times.untraced_seconds, 20 * times.step_seconds);
}

TEST_P(NodeTimesTest, LeaveNoLogBehind) {
  Model model(runtime(), device(), network(), {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {8}});
  (void)measure_node_times(step, random_batch(model, 8, philox_key(1, RandomPurpose::dataset)), 2);
  EXPECT_EQ(runtime().exec(device()).log, nullptr);
}

}  // namespace
}  // namespace bantam::run::node_times_test
