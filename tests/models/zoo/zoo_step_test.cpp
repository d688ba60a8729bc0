// Training steps of the zoo's networks, on small images: finite, planned to the byte, and with recompute and half
// the memory for activations the same bits.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/engine/plan/recompute_search.h"
#include "bantam/engine/step/random_batch.h"
#include "tests/models/zoo/distinct_networks.h"

namespace bantam::models::zoo_step_test {
namespace {

/// 64x64 pixels where the network halves them five times, 32x32 else; the least width that keeps all layers different.
Graph small_network(const ZooModel& model) {
  ZooOptions options = model.defaults;
  options.classes = 5;
  options.input = options.input[0] > 32 ? Shape{64, 64, 3} : Shape{32, 32, 3};
  if (model.has_width) options.width = 0.25;
  return model.build(options);
}

struct Outcome {
  std::vector<float> weights;
  double loss = 0;
  MemoryStats memory;
};

/// One update of two samples.
Outcome trained(Device device, const Graph& graph, const ModelOptions& options) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device, graph, options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {2}});
  step.step(random_batch(model, 2, philox_key(7, RandomPurpose::test)));
  const double loss = step.read_metrics().back().loss;
  return {to_host<float>(model.parameters().master(), fresh.stream(device)), loss, fresh.allocator(device).stats()};
}

StepPlanOptions plan_options(Device device, const ModelOptions& options) {
  return {.model = options, .batch = 2, .device = device};
}

StepPlan expect_planned(const Outcome& run, const Graph& graph, const StepPlanOptions& options) {
  StepPlan plan = plan_step(graph, options);
  EXPECT_EQ(run.memory.departures, 0u);
  EXPECT_EQ(run.memory.peak_bytes, plan.peak_bytes);
  return plan;
}

class ZooStep : public ::testing::TestWithParam<std::tuple<Device, std::string>> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
  Device device() const { return std::get<Device>(GetParam()); }
  Graph network() const { return small_network(*find_zoo_model(std::get<std::string>(GetParam()))); }
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<Device, std::string>>& info) {
  const auto& [device, name] = info.param;
  return name + (device.is_cuda() ? "_cuda" : "_cpu");
}
INSTANTIATE_TEST_SUITE_P(Networks, ZooStep,
                         ::testing::Combine(::testing::Values(Device::cpu(), Device::cuda(0)),
                                            ::testing::ValuesIn(distinct_networks())),
                         name_of);

TEST_P(ZooStep, IsFiniteAndPlannedAndRecomputeChangesNoBit) {
  using Kind = RecomputeOptions::Kind;
  const Graph graph = network();
  ModelOptions options{.seed = 3};
  const Outcome kept = trained(device(), graph, options);
  EXPECT_TRUE(std::isfinite(kept.loss));
  EXPECT_TRUE(std::all_of(kept.weights.begin(), kept.weights.end(), [](float w) { return std::isfinite(w); }));
  const StepPlan plan = expect_planned(kept, graph, plan_options(device(), options));

  const std::uint64_t half = plan.persistent_bytes + (plan.step_peak_bytes - plan.persistent_bytes) / 2;
  const RecomputeChoice budgeted = search_recompute(
      graph, {.step = plan_options(device(), options), .bytes = half, .rates = typical_rates(device(), {})});
  // The peak of two samples may be what recompute does not save: weights, and on CUDA workspaces of the libraries.
  const std::uint64_t kept_bytes = plan.by_category.bytes[static_cast<std::size_t>(Category::activation)];
  const bool saves = !device().is_cuda() && kept_bytes > plan.peak_bytes / 10;
  EXPECT_LE(budgeted.peak_bytes, plan.peak_bytes - (saves ? 1 : 0));
  for (const RecomputeOptions& recompute : {RecomputeOptions{.kind = Kind::all}, budgeted.recompute}) {
    options.recompute = recompute;
    const Outcome run = trained(device(), graph, options);
    EXPECT_EQ(run.weights, kept.weights);
    expect_planned(run, graph, plan_options(device(), options));
  }
}

TEST_P(ZooStep, InMixedPrecisionIsFiniteAndPlanned) {
  const Graph graph = network();
  const ModelOptions options{.precision = {PrecisionKind::mixed_bfloat16}};
  const Outcome run = trained(device(), graph, options);
  EXPECT_TRUE(std::isfinite(run.loss));
  expect_planned(run, graph, plan_options(device(), options));
}

}  // namespace
}  // namespace bantam::models::zoo_step_test
