// run::plan: rows as `bantam plan` prints them, typed.
#include "bantam/run/plan.h"

#include "tests/run/run_fixture.h"

namespace bantam::run::plan_test {
namespace {

using PlanTest = RunTest;

TEST_F(PlanTest, OneRowIsTheConfiguration) {
  const RunConfig config = tiny();
  const Plan planned = plan(config, plan_target(config, std::nullopt));
  ASSERT_EQ(planned.rows.size(), 1u);
  const PlanRow& row = planned.rows[0];
  EXPECT_EQ(row.step.batch, 16);
  EXPECT_EQ(row.plan.peak_bytes, step_peak(config.model.graph, train_plan_options(config, row.step)));
  ASSERT_TRUE(row.run);
  EXPECT_EQ(row.run->pool_bytes, plan_run(config).pool_bytes);
  EXPECT_EQ(row.planned.pool_bytes, row.run->pool_bytes);
  EXPECT_TRUE(row.planned.fits);
  EXPECT_FALSE(planned.fit.any());
}

TEST_F(PlanTest, RowsAreComparedWithMemory) {
  const RunConfig config = tiny();
  const PlanTarget target = plan_target(config, std::nullopt);
  const Plan all = plan(config, target, {.batches = {16, 48}});
  const std::uint64_t small = all.rows.at(0).needed_pool(), large = all.rows.at(1).needed_pool();
  ASSERT_LT(small, large);
  std::vector<std::size_t> received;
  PlanRequest request{.batches = {48, 16}, .recomputes = {parse_recompute("none")}, .memory = (small + large) / 2};
  const Plan some = plan(config, target, request, [&](const Plan& so_far) { received.push_back(so_far.rows.size()); });
  EXPECT_FALSE(some.rows.at(0).planned.fits);
  EXPECT_TRUE(some.rows.at(1).planned.fits);
  EXPECT_TRUE(some.any_fits());
  EXPECT_EQ(some.least().step.batch, 16);
  EXPECT_EQ(received, (std::vector<std::size_t>{1, 2}));
  request.memory = small / 2;
  EXPECT_FALSE(plan(config, target, request).any_fits());
}

TEST_F(PlanTest, AnOpenBatchIsChosen) {
  const RunConfig config = tiny({"data.pipeline.batch={size: auto, max: 24}", "memory.limits={cpu: 64MiB}"});
  const Plan planned = plan(config, plan_target(config, std::nullopt));
  ASSERT_EQ(planned.decisions.messages.size(), 1u);
  EXPECT_TRUE(planned.decisions.messages[0].starts_with("batch size 24: "));
  EXPECT_EQ(planned.rows.at(0).step.batch, 24);
}

TEST_F(PlanTest, ADeviceNeedNotBeHere) {
  const RunConfig config = tiny({"device=cuda:0"});
  const Plan planned = plan(config, plan_target(config, find_device_profile("h200")));
  EXPECT_EQ(planned.fit.of, PlanFit::Of::card);
  EXPECT_TRUE(planned.rows.at(0).planned.fits);
  EXPECT_GT(planned.fit.needed_bytes(planned.target, planned.rows[0].needed_pool()), planned.rows[0].needed_pool());
}

}  // namespace
}  // namespace bantam::run::plan_test
