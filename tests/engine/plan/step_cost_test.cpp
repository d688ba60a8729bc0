// Predicted steps: fusion and recompute show in them, and what a larger batch gains.
#include "bantam/engine/plan/step_cost.h"

#include "bantam/engine/plan/step_ledger.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::step_cost_test {
namespace {

using kernels::KernelPhase;

constexpr DeviceRates kRates{.bytes_per_s = 1e10, .flops_per_s = 1e11};

Graph small(std::int64_t units = 4) {
  Graph graph({16, 16, 4});
  graph.add("conv", conv2d({.filters = 16, .kernel = {3, 3}}));
  graph.add(global_average_pool());
  graph.add("head", dense({.units = units}));
  return graph;
}

/// Blocks as mobilenet_v1 has them: 1x1 convolutions, and depthwise ones between norms.
Graph depthwise_net() {
  Graph graph({16, 16, 3});
  graph.add("stem", conv2d({.filters = 32, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  for (int i = 1; i <= 2; ++i) {
    const std::string name = "block" + std::to_string(i);
    graph.add(name + "/norm", batch_norm({.activation = {Activation::relu6}}));
    graph.add(name + "/depthwise", depthwise_conv2d({.kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
    graph.add(name + "/depthwise_norm", batch_norm({.activation = {Activation::relu6}}));
    graph.add(name + "/pointwise", conv2d({.filters = 64, .kernel = {1, 1}, .bias = false}));
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 10}));
  return graph;
}

StepPlanOptions step_of(std::int64_t batch, Device device = Device::cpu()) {
  StepPlanOptions step{.batch = batch, .device = device};
  if (device.is_cuda()) step.model.precision.kind = PrecisionKind::mixed_float16;
  return step;
}

TEST(StepCost, SeesFusion) {
  const Graph graph = depthwise_net();
  StepPlanOptions step = step_of(64, Device::cuda());
  const StepLedger fused = step_ledger(graph, step, kRates);
  const double seconds = step_seconds(graph, step, kRates);
  step.model.fusion = false;
  const StepLedger apart = step_ledger(graph, step, kRates);
  EXPECT_LT(fused.bytes, apart.bytes) << "what lies between the norms is never written";
  EXPECT_LT(fused.kernels, apart.kernels);
  EXPECT_LT(seconds, step_seconds(graph, step, kRates));
  EXPECT_GT(apart.seconds_of("block1/depthwise", KernelPhase::forward), 0.0);
  EXPECT_EQ(fused.seconds_of("block1/depthwise", KernelPhase::forward), 0.0) << "its op stands at the first node";
}

TEST(StepCost, OfRecomputeIsThatOfTheStepsThatRun) {
  const Graph graph = depthwise_net();
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    StepPlanOptions step = step_of(16, device);
    EXPECT_EQ(extra_work(graph, step, kRates), 0.0);
    const double none = step_seconds(graph, step, kRates);
    step.model.recompute = {RecomputeOptions::Kind::named, {"block1"}};
    const double named = step_seconds(graph, step, kRates);
    EXPECT_GT(named, none);
    EXPECT_DOUBLE_EQ(extra_work(graph, step, kRates), named / none - 1);
    step.model.recompute = {RecomputeOptions::Kind::all};
    EXPECT_GT(step_seconds(graph, step, kRates), named);
  }
}

TEST(StepCost, TellsTheSearchWhatNodesCost) {
  const Graph graph = depthwise_net();
  const StepPlanOptions step = step_of(16);
  const StepCost cost = predict_cost(graph, step, kRates);
  EXPECT_DOUBLE_EQ(cost.step, step_seconds(graph, step, kRates));
  for (NodeId node = 1; node < graph.output(); ++node) {
    const auto at = static_cast<std::size_t>(node);
    EXPECT_LE(cost.last[at], cost.recomputed[at]) << graph.node(node).name << ": nobody reads a segment's output again";
  }
  EXPECT_GT(cost.recomputed[1], 0.0);
  EXPECT_EQ(cost.last[1], 0.0) << "a convolution writes nothing for nobody";
}

TEST(StepCost, ADeferredNormIsWrittenWhereItsReaderIsInAnotherSegment) {
  Graph graph({8, 8, 8});
  graph.add("conv", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
  const NodeId norm = graph.add("norm", batch_norm());
  graph.add("add", add({Activation::relu}), {norm, 0});
  graph.add(global_average_pool());
  const StepCost cost = predict_cost(graph, step_of(64), kRates);
  // The norm's output of 64·8·8·8 floats is written, from an input that is read once more.
  EXPECT_GE(cost.deferral[2], 2 * 4 * 64 * 512 / kRates.bytes_per_s);
  EXPECT_EQ(cost.deferral[1] + cost.deferral[3], 0.0);
}

TEST(UpdateCost, ImagesPerSecondGrowTowardsABoundThatGainTells) {
  const UpdateCost cost = predict_update(small(), step_of(1), kRates);
  double before = 0;
  for (const std::int64_t batch : {1, 2, 16, 256, 65536}) {
    const double now = cost.images_per_s(batch);
    EXPECT_GT(now, before);
    EXPECT_NEAR(now * (1 + cost.gain_beyond(batch)), 1 / cost.sample_seconds, 1e-9 / cost.sample_seconds);
    before = now;
  }
}

TEST(UpdateCost, IsALineThroughLargeBatches) {
  const UpdateCost cost = predict_update(small(), step_of(1), kRates);
  for (const std::int64_t batch : {256, 512, 1024}) {
    const double seconds = step_seconds(small(), step_of(batch), kRates);
    EXPECT_NEAR(cost.fixed_seconds + cost.sample_seconds * static_cast<double>(batch), seconds, 0.01 * seconds);
  }
}

TEST(UpdateCost, EnoughIsTheLeastBatchWithoutSuchAGain) {
  const UpdateCost cost = predict_update(small(), step_of(1), kRates);
  for (const double gain : {0.5, 0.05, 0.01}) {
    const std::int64_t enough = cost.enough_batch(gain);
    ASSERT_GT(enough, 1);
    EXPECT_LE(cost.gain_beyond(enough), gain);
    EXPECT_GT(cost.gain_beyond(enough - 1), gain);
  }
}

TEST(UpdateCost, ManyWeightsWantLargerBatchesAndAccumulationSmallerOnes) {
  const auto fixed = [](std::int64_t units, std::int64_t accumulate, bool adam) {
    StepPlanOptions step = step_of(1);
    step.accumulate = accumulate;
    if (!adam) step.optimizer = {.rule = sgd({.momentum = 0})};
    return predict_update(small(units), step, kRates).fixed_seconds;
  };
  const double few = fixed(4, 1, true), many = fixed(100'000, 1, true), sgd = fixed(100'000, 1, false);
  EXPECT_GT(many, few);
  EXPECT_GT(many, sgd) << "moments are read and written, too";
  EXPECT_LT(fixed(100'000, 8, true), many);
  // Two moments of 1.7·10^6 weights, of 4 bytes each, read and written.
  EXPECT_NEAR(many - sgd, 2 * 2 * 4 * 1.7e6 / kRates.bytes_per_s, 1e-5);
}

}  // namespace
}  // namespace bantam::testing::step_cost_test
