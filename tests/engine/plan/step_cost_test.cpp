// UpdateCost: what a larger batch gains, by the roofline.
#include "bantam/engine/plan/step_cost.h"

#include "tests/engine/engine_fixture.h"

namespace bantam::testing {
namespace {

Graph small() {
  Graph graph({16, 16, 4});
  graph.add("conv", conv2d({.filters = 16, .kernel = {3, 3}}));
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 4}));
  return graph;
}

constexpr DeviceRates kRates{.bytes_per_s = 1e10, .flops_per_s = 1e11};

TEST(UpdateCost, ImagesPerSecondGrowTowardsABoundThatGainTells) {
  const UpdateCost cost = predict_update(small(), {}, kRates, {.parameters = 1000, .moments = 2});
  double before = 0;
  for (const std::int64_t batch : {1, 2, 16, 256, 65536}) {
    const double now = cost.images_per_s(batch);
    EXPECT_GT(now, before);
    EXPECT_NEAR(now * (1 + cost.gain_beyond(batch)), 1 / cost.sample_seconds, 1e-9 / cost.sample_seconds);
    before = now;
  }
}

TEST(UpdateCost, EnoughIsTheLeastBatchThatLeavesNoSuchGain) {
  const UpdateCost cost = predict_update(small(), {}, kRates, {.parameters = 1000, .moments = 2});
  for (const double gain : {0.5, 0.05, 0.01}) {
    const std::int64_t enough = cost.enough_batch(gain);
    ASSERT_GT(enough, 1);
    EXPECT_LE(cost.gain_beyond(enough), gain);
    EXPECT_GT(cost.gain_beyond(enough - 1), gain);
  }
}

TEST(UpdateCost, ManyWeightsWantLargerBatchesAndAccumulationSmallerOnes) {
  const auto enough = [](const UpdateSize& size) {
    return predict_update(small(), {}, kRates, size).enough_batch(0.05);
  };
  const std::int64_t few = enough({.parameters = 1000}), many = enough({.parameters = 10'000'000});
  EXPECT_GT(many, few);
  EXPECT_GT(enough({.parameters = 10'000'000, .moments = 2}), many) << "moments are read and written, too";
  EXPECT_LT(enough({.parameters = 10'000'000, .accumulate = 8}), many);
  // 10^7 weights and gradients of 4 bytes, each read and written: 16 ms at 10^10 bytes/s.
  const double update = predict_update(small(), {}, kRates, {.parameters = 10'000'000}).fixed_seconds -
                        predict_update(small(), {}, kRates, {}).fixed_seconds;
  EXPECT_NEAR(update, 16e-3, 1e-9);
}

}  // namespace
}  // namespace bantam::testing
