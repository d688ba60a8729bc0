// The step program of small networks for a GPU and for the CPU: what stands for which layers, where norms are computed
// and applied, and what backward does.
#include "bantam/engine/model/lower.h"

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::lower_test {
namespace {

using Kind = RecomputeOptions::Kind;

constexpr FusionTarget kGpu{.compute = DType::float16, .device = DeviceKind::cuda};
constexpr FusionTarget kCpu{.compute = DType::float32, .device = DeviceKind::cpu};

/// 1 conv, 2 norm (relu), 3 depthwise, 4 norm (relu6), 5 pointwise, 6 norm, 7 conv, 8 norm, 9 sum, 10 pool, 11 dense.
Graph network() {
  const auto norm = [](Activation f) { return batch_norm({.activation = {f}}); };
  const auto conv = [](std::int64_t filters, std::int64_t kernel) {
    return conv2d(
        {.filters = filters, .kernel = {kernel, kernel}, .padding = Padding::symmetric(kernel / 2), .bias = false});
  };
  Graph graph({12, 12, 3});
  graph.add("stem", conv(16, 3));
  graph.add("stem_norm", norm(Activation::relu));
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::symmetric(1), .bias = false}));
  graph.add("depthwise_norm", norm(Activation::relu6));
  graph.add("pointwise", conv(16, 1));
  const NodeId left = graph.add("left_norm", norm(Activation::none));
  graph.add("right", conv(16, 3));
  const NodeId right = graph.add("right_norm", norm(Activation::none));
  graph.add("sum", add({.kind = Activation::relu}), {left, right});
  graph.add("pool", global_average_pool());
  graph.add("dense", dense({.units = 4}));
  return graph;
}

TEST(StepProgramTest, FusesAndComputesStatisticsOnAGpu) {
  const StepProgram program = lower(network(), {}, true, kGpu);
  const NodePlan& fused = program.plan_of(3);
  ASSERT_NE(fused.fusion, nullptr);
  EXPECT_EQ(fused.fusion->name, "norm_depthwise");
  EXPECT_EQ(fused.first, 2);
  EXPECT_EQ(fused.last, 4);
  EXPECT_TRUE(fused.defers_norm) << "the pointwise convolution applies it";
  EXPECT_EQ(program.plan_of(1).statistics_for, 2);
  EXPECT_EQ(program.plan_of(5).statistics_for, 6);
  EXPECT_EQ(program.plan_of(8).defers_norm, true) << "the sum applies it";
  EXPECT_EQ(program.plan_of(6).defers_norm, false) << "two nodes read it";
  for (const ProgramSegment& segment : program.segments)
    for (const NodePlan& plan : segment.nodes) {
      EXPECT_FALSE(plan.recomputed || plan.ends_segment);
      EXPECT_EQ(plan.norm_after, nullptr) << "bound by models only";
    }
}

TEST(StepProgramTest, WithoutFusionEachLayerIsAnOperation) {
  for (const StepProgram& program : {lower(network(), {}, false, kGpu), lower(network(), {}, true, kCpu)}) {
    const bool on_cpu = program.plan_of(2).fusion != nullptr;
    if (!on_cpu) {
      EXPECT_EQ(program.segments.size(), 11u);
    }
    for (NodeId node = 1; node <= 11; ++node) EXPECT_EQ(program.plan_of(node).statistics_for, 0) << node;
  }
}

TEST(StepProgramTest, SaysWhatBackwardDoes) {
  const RecomputeOptions options{Kind::named, {"right..sum"}, Derive::inner, true};
  const StepProgram program = lower(network(), options, true, kGpu);
  for (const NodeId node : {7, 8, 9}) {
    const NodePlan& plan = program.plan_of(node);
    EXPECT_TRUE(plan.recomputed) << node;
    EXPECT_EQ(plan.derive, Derive::none) << "whole: a recomputed segment keeps what it computes";
    EXPECT_EQ(plan.ends_segment, node == 9);
    EXPECT_EQ(plan.segment, program.plan_of(9).segment);
  }
  EXPECT_EQ(program.plan_of(6).derive, Derive::inner);
  EXPECT_FALSE(program.plan_of(6).recomputed);
  const StepProgram all = lower(network(), {.kind = Kind::all}, true, kGpu);
  for (const ProgramSegment& segment : all.segments)
    for (const NodePlan& plan : segment.nodes) EXPECT_FALSE(plan.ends_segment) << "all keeps no masks";
}

TEST(StepProgramTest, KnowsNoOtherNodes) {
  const StepProgram program = lower(network(), {});
  EXPECT_THROW((void)program.plan_of(0), Error);
  EXPECT_THROW((void)program.plan_of(12), Error);
}

}  // namespace
}  // namespace bantam::lower_test
