// The plan of a run is what its run takes, in its parts and as a whole.
#include "bantam/run/fit/run_plan.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_plan_test {
namespace {

using RunPlanTest = RunTest;

TEST_F(RunPlanTest, AddsUp) {
  const RunPlan plan = plan_run(tiny());
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : plan.by_category.bytes) sum += bytes;
  EXPECT_EQ(sum, plan.peak_bytes);
  EXPECT_GE(plan.pool_bytes, plan.peak_bytes);
  EXPECT_GT(plan.arena_bytes, 0u);
  EXPECT_LT(plan.arena_bytes, plan.pool_bytes);
  EXPECT_EQ(run_peak(tiny()), plan.peak_bytes);
}

TEST_F(RunPlanTest, EpochsTakeNothingMore) {
  EXPECT_EQ(plan_run(tiny({"train.epochs=2"})).pool_bytes, plan_run(tiny({"train.epochs=900"})).pool_bytes);
}

TEST_F(RunPlanTest, BatchesAndDataCount) {
  const RunPlan plan = plan_run(tiny());
  EXPECT_GT(plan_run(tiny({"data.pipeline.batch.size=48"})).peak_bytes, plan.peak_bytes);
  const RunPlan more = plan_run(tiny({"data.train_samples=960"}));
  const std::uint64_t images = (960 - 96) * 32 * 32 * 3;
  EXPECT_GE(more.peak_bytes, plan.peak_bytes + images) << "on the CPU the data set lies in the pool";
  EXPECT_EQ(more.by_category[Category::activation], plan.by_category[Category::activation]);
}

TEST_F(RunPlanTest, WithoutABatchThereIsNoRun) {
  EXPECT_TRUE(has_batches(tiny(), 16));
  EXPECT_TRUE(has_batches(tiny(), 1000)) << "a short one";
  EXPECT_FALSE(has_batches(tiny({"data.pipeline.batch.drop_last=true"}), 1000));
}

TEST_F(RunPlanTest, DataMustFitTheModel) {
  EXPECT_THROW((void)plan_run(tiny({"model.input=[16, 16, 3]"})), ConfigError);
}

}  // namespace
}  // namespace bantam::run::run_plan_test
