// Explanations: operations add up to the update, name all layers, and say what backward does and who applies norms.
#include "bantam/run/explain/explain.h"

#include <algorithm>

#include "bantam/memory/device/device_profile.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::explain_test {
namespace {

class ExplainTest : public RunTest {
 protected:
  static Explanation of(const RunConfig& config) {
    return explain(config, {16, config.precision, config.recompute}, typical_rates(config.device, config.precision));
  }
  static const ExplainedNode& node(const Explanation& explanation, const std::string& name) {
    return *std::ranges::find(explanation.nodes, name, &ExplainedNode::name);
  }
  static std::vector<std::string> layers(const Explanation& explanation) {
    std::vector<std::string> names;
    for (const ExplainedNode& node : explanation.nodes)
      names.insert(names.end(), node.layers.begin(), node.layers.end());
    return names;
  }
};

TEST_F(ExplainTest, OperationsAddUpToTheUpdate) {
  for (const char* precision : {"precision=float32", "precision=mixed_float16"})
    for (const char* accumulate : {"train.accumulate=1", "train.accumulate=3"}) {
      const Explanation explanation = of(tiny({precision, accumulate}));
      std::int64_t bytes = 0, flops = 0, kernels = 0;
      double seconds = 0;
      for (const ExplainedNode& node : explanation.nodes) {
        bytes += node.bytes(), flops += node.flops(), seconds += node.predicted_seconds();
        for (const ExplainedPhase& phase : node.phases) kernels += static_cast<std::int64_t>(phase.kernels.size());
      }
      EXPECT_EQ(bytes, explanation.bytes);
      EXPECT_EQ(flops, explanation.flops);
      EXPECT_EQ(kernels, explanation.kernels);
      EXPECT_NEAR(seconds, explanation.predicted_seconds, 1e-9 * explanation.predicted_seconds);
      EXPECT_FALSE(explanation.times);
    }
}

TEST_F(ExplainTest, EveryLayerStandsInOneOperation) {
  const RunConfig config = tiny();
  std::vector<std::string> expected;
  for (std::size_t i = 1; i < config.model.graph.nodes().size(); ++i)
    expected.push_back(config.model.graph.nodes()[i].name);
  const Explanation explanation = of(config);
  EXPECT_EQ(layers(explanation), expected);
  EXPECT_EQ(node(explanation, "conv2d").runs, "conv2d");
  EXPECT_EQ(explanation.nodes.back().name, "optimizer");
  EXPECT_EQ(node(explanation, "conv2d").backward, Keeping::kept);
  EXPECT_GT(node(explanation, "conv2d").kept_bytes, 0u);
}

TEST_F(ExplainTest, SaysWhatIsRecomputedAndRebuilt) {
  const Explanation recomputed = of(tiny({"recompute=[conv2d..batch_norm]"}));
  for (const char* layer : {"conv2d", "batch_norm"})
    EXPECT_EQ(node(recomputed, layer).backward, Keeping::recomputed) << layer;
  const auto& phases = node(recomputed, "conv2d").phases;
  EXPECT_TRUE(std::ranges::find(phases, kernels::KernelPhase::recompute, &ExplainedPhase::phase) != phases.end());
  EXPECT_NE(node(of(tiny()), "conv2d").backward, Keeping::recomputed);
}

TEST_F(ExplainTest, AGpuThatIsNotHereRunsFusions) {
  const RunConfig config = parse_run_config(R"(device: cuda:0
precision: mixed_float16
model:
  name: pair
  input: [32, 32, 16]
  layers:
    - conv2d: {filters: 32, kernel: 1, bias: false}
    - batch_norm: {activation: relu}
    - depthwise_conv2d: {kernel: 3, padding: same, bias: false}
    - batch_norm: {activation: relu}
    - conv2d: {filters: 32, kernel: 1, bias: false}
    - global_average_pool
    - dense: {units: 10}
)",
                                            "pair.yaml", {});
  const Explanation explanation = of(config);
  const ExplainedNode fused = node(explanation, "batch_norm");
  EXPECT_EQ(fused.runs, "norm_depthwise");
  EXPECT_EQ(fused.layers, (std::vector<std::string>{"batch_norm", "depthwise_conv2d", "batch_norm_2"}));
  EXPECT_EQ(fused.norm_applied_by, "conv2d_2");
  EXPECT_EQ(node(explanation, "conv2d").statistics_for, "batch_norm");
}

TEST_F(ExplainTest, MeasuredTimesArePartsOfTheUpdate) {
  const RunConfig config = tiny();
  const Explanation explanation = explain_measured(config, {16, config.precision, config.recompute, StepMode::planned},
                                                   typical_rates(config.device, config.precision), 1);
  ASSERT_TRUE(explanation.times);
  double seconds = explanation.times->between_kernels + explanation.times->between_updates;
  for (const ExplainedNode& node : explanation.nodes) seconds += node.measured_seconds();
  EXPECT_NEAR(seconds, explanation.times->step_seconds, 1e-6 * explanation.times->step_seconds);
  for (const char* layer : {"conv2d", "batch_norm", "dense", "optimizer"})
    EXPECT_GT(node(explanation, layer).measured_seconds(), 0) << layer;
}

}  // namespace
}  // namespace bantam::run::explain_test
