// Ledgers: who runs what in a step, by hand at a tiny network, and totals that add up.
#include "bantam/engine/plan/step_ledger.h"

#include <map>
#include <set>

#include "tests/engine/engine_fixture.h"

namespace bantam::testing::step_ledger_test {
namespace {

using kernels::KernelPhase;

constexpr DeviceRates kRates{.bytes_per_s = 1e10, .flops_per_s = 1e11};
constexpr std::int64_t kBatch = 2;

/// (4, 4, 3) images, 3x3 to 8 channels, norm and ReLU, mean, 5 classes.
Graph tiny() {
  Graph graph({4, 4, 3});
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 5, .bias = false}));
  return graph;
}

StepPlanOptions step_of(const RecomputeOptions& recompute = {}) {
  return {.model = {.recompute = recompute}, .batch = kBatch, .device = Device::cpu()};
}

const NodeCost& at(const StepLedger& ledger, const std::string& owner, KernelPhase phase) {
  for (const NodeCost& node : ledger.nodes)
    if (node.owner == owner && node.phase == phase) return node;
  throw Error("no " + std::string(to_string(phase)) + " of " + owner);
}

using Names = std::vector<std::string>;

TEST(StepLedger, CountsATinyNetworkAsByHand) {
  const StepLedger ledger = step_ledger(tiny(), step_of(), kRates);
  constexpr std::int64_t x = 96, w = 216, y = 256, channels = 4 * 8;
  const NodeCost conv = at(ledger, "conv", KernelPhase::forward);
  EXPECT_EQ(conv.kernels, Names{"conv2d_forward"});
  EXPECT_EQ(conv.bytes, 4 * (x + w + y));
  EXPECT_EQ(conv.flops, 2 * y * 27);
  const NodeCost back = at(ledger, "conv", KernelPhase::backward);
  EXPECT_EQ(back.kernels, Names{"conv2d_grad_weight"}) << "the batch wants no gradient";
  EXPECT_EQ(back.bytes, 4 * (x + y + w));
  EXPECT_EQ(back.flops, 2 * y * 27);
  const NodeCost norm = at(ledger, "norm", KernelPhase::forward);
  EXPECT_EQ(norm.kernels, Names{"batch_norm_forward_training"});
  // x twice and y; mean and inverse deviation, two running statistics read and written, scale and shift.
  EXPECT_EQ(norm.bytes, 4 * 3 * y + (2 + 4 + 2) * channels);
  EXPECT_EQ(norm.flops, 0);
  // x and dy twice, dx; scale, shift, mean and inverse deviation; two gradients.
  EXPECT_EQ(at(ledger, "norm", KernelPhase::backward).bytes, 4 * 5 * y + (4 + 2) * channels);
  EXPECT_EQ(at(ledger, "head", KernelPhase::forward).flops, 2 * 2 * 8 * 5);
  EXPECT_EQ(at(ledger, "optimizer", KernelPhase::update).kernels, (Names{"begin_update", "apply_update"}));
  EXPECT_EQ(at(ledger, "loss", KernelPhase::forward).kernels, Names{"softmax_cross_entropy_forward"});
}

TEST(StepLedger, NodesAddUpToTheStep) {
  for (const RecomputeOptions& recompute :
       {RecomputeOptions{}, RecomputeOptions{RecomputeOptions::Kind::all}, RecomputeOptions{.derive = Derive::inner}})
    for (const std::int64_t accumulate : {1, 3}) {
      StepPlanOptions step = step_of(recompute);
      step.accumulate = accumulate;
      double logged_seconds = 0;
      std::int64_t logged_bytes = 0, logged_kernels = 0;
      (void)step_peak(tiny(), step, [&](const kernels::KernelLog& log) {
        logged_seconds = predict_seconds(log, kRates);
        for (const kernels::KernelEntry& entry : log.entries()) logged_bytes += entry.work.bytes, ++logged_kernels;
      });
      const StepLedger ledger = step_ledger(tiny(), step, kRates);
      std::int64_t bytes = 0, flops = 0, kernels = 0;
      double seconds = 0;
      std::set<std::pair<std::string, KernelPhase>> places;
      for (const NodeCost& node : ledger.nodes) {
        bytes += node.bytes, flops += node.flops, seconds += node.seconds;
        kernels += static_cast<std::int64_t>(node.kernels.size());
        EXPECT_TRUE(places.emplace(node.owner, node.phase).second) << node.owner << " stands there twice";
      }
      EXPECT_EQ(bytes, ledger.bytes);
      EXPECT_EQ(bytes, logged_bytes);
      EXPECT_EQ(flops, ledger.flops);
      EXPECT_EQ(kernels, ledger.kernels);
      EXPECT_EQ(kernels, logged_kernels);
      EXPECT_NEAR(seconds, ledger.seconds, 1e-12);
      EXPECT_NEAR(logged_seconds, ledger.seconds, 1e-12);
    }
}

TEST(StepLedger, ASegmentsSecondForwardIsRecompute) {
  const StepLedger none = step_ledger(tiny(), step_of(), kRates),
                   segment = step_ledger(tiny(), step_of({RecomputeOptions::Kind::named, {"conv..pool"}}), kRates);
  for (const NodeCost& node : none.nodes) {
    EXPECT_NE(node.phase, KernelPhase::recompute);
    EXPECT_NE(node.phase, KernelPhase::rebuild);
    EXPECT_EQ(at(segment, node.owner, node.phase).bytes, node.bytes)
        << node.owner << ": what runs anyway runs as before";
  }
  const NodeCost conv = at(segment, "conv", KernelPhase::recompute);
  EXPECT_EQ(conv.kernels, Names{"conv2d_forward"});
  EXPECT_EQ(conv.bytes, at(none, "conv", KernelPhase::forward).bytes);
  EXPECT_EQ(at(segment, "norm", KernelPhase::recompute).kernels, Names{"batch_norm_apply"}) << "statistics are kept";
}

TEST(StepLedger, RecipesAreRebuilt) {
  Graph graph({4, 4, 3});
  graph.add("conv", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("conv2", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
  graph.add("pool", global_average_pool());
  const StepLedger ledger = step_ledger(graph, step_of({.derive = Derive::inner}), kRates);
  EXPECT_EQ(at(ledger, "norm", KernelPhase::rebuild).kernels, Names{"batch_norm_apply"})
      << "for the gradient of conv2's weight";
}

TEST(StepLedger, NodesThatRunAsOneOpStandOnce) {
  Graph graph({8, 8, 8});
  graph.add("expand", conv2d({.filters = 64, .kernel = {1, 1}, .bias = false}));
  graph.add("norm", batch_norm({.activation = {Activation::relu6}}));
  graph.add("depthwise", depthwise_conv2d({.kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  graph.add("norm2", batch_norm({.activation = {Activation::relu6}}));
  graph.add("pool", global_average_pool());
  std::map<std::string, int> forwards;
  for (const NodeCost& node : step_ledger(graph, step_of(), kRates).nodes)
    if (node.phase == KernelPhase::forward) forwards[node.owner] += static_cast<int>(node.kernels.size());
  EXPECT_EQ(forwards["norm"], 3) << "the first norm's statistics, the convolution, and the second norm";
  EXPECT_FALSE(forwards.contains("depthwise"));
  EXPECT_FALSE(forwards.contains("norm2"));
}

}  // namespace
}  // namespace bantam::testing::step_ledger_test
