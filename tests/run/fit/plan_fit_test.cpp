// The limit that a plan is compared with.
#include "bantam/run/fit/plan_fit.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::plan_fit_test {
namespace {

using PlanFitTest = RunTest;

constexpr std::uint64_t kMiB = 1u << 20, kGiB = 1u << 30;

PlanFit on_cpu(const RunConfig& config, std::uint64_t memory = 0) {
  PlanTarget target = plan_target(config, std::nullopt);
  target.memory = memory;
  return plan_fit(config.memory, target);
}

PlanTarget card(const RunConfig& config, std::uint64_t bytes) {
  return plan_target(config, DeviceProfile{.name = "test", .total_bytes = bytes, .overhead = {{"context", kGiB / 2}}});
}

TEST_F(PlanFitTest, NothingBoundsACpu) {
  const PlanFit fit = on_cpu(RunTest::tiny());
  EXPECT_FALSE(fit.any());
  EXPECT_EQ(fit.pool, 0u);
  EXPECT_EQ(fit.to_text(plan_target(tiny(), std::nullopt)), "");
}

TEST_F(PlanFitTest, WhatIsNamedComesBeforeTheConfiguration) {
  const RunConfig config = tiny({"memory.limits={cpu: 5MiB}"});
  EXPECT_EQ(on_cpu(config).pool, 5 * kMiB);
  EXPECT_EQ(on_cpu(config, 3 * kMiB).pool, 3 * kMiB);
  EXPECT_EQ(on_cpu(config, 3 * kMiB).of, PlanFit::Of::pool);
}

// What the data's files keep in memory is in a limit, but not in a budget, which is of the pool.
TEST_F(PlanFitTest, ReadersAreInACpusLimit) {
  PlanTarget target = plan_target(tiny(), std::nullopt);
  target.readers_bytes = kMiB;
  const PlanFit limit = plan_fit(tiny({"memory.limits={cpu: 5MiB}"}).memory, target);
  EXPECT_EQ(limit.pool, 4 * kMiB);
  EXPECT_EQ(limit.needed_bytes(target, 4 * kMiB), 5 * kMiB);
  EXPECT_EQ(limit.needed_bytes(target, 5 * kMiB), 6 * kMiB);
  EXPECT_EQ(limit.to_text(target), "to fit a pool of 5.00 MiB, 1.00 MiB of it the data's files'");
  const PlanFit budget = plan_fit(tiny({"memory.budget=5MiB"}).memory, target);
  EXPECT_EQ(budget.pool, 5 * kMiB);
  EXPECT_EQ(budget.needed_bytes(target, 5 * kMiB), 5 * kMiB);
}

TEST_F(PlanFitTest, TheSmallerOfBudgetAndLimit) {
  EXPECT_EQ(on_cpu(tiny({"memory={budget: 2MiB, limits: {cpu: 5MiB}}"})).pool, 2 * kMiB);
  EXPECT_EQ(on_cpu(tiny({"memory={budget: 9MiB, limits: {cpu: 5MiB}}"})).pool, 5 * kMiB);
}

TEST_F(PlanFitTest, AGpuIsBoundByItsCard) {
  const RunConfig config = tiny({"device=cuda:0"});
  const PlanTarget target = card(config, 4 * kGiB);
  const PlanFit whole = plan_fit(config.memory, target);
  EXPECT_EQ(whole.of, PlanFit::Of::card);
  EXPECT_EQ(whole.pool, 4 * kGiB - bytes_besides_pool(target));
  EXPECT_EQ(whole.chosen_pool(), 0u) << "recompute is not chosen for the card alone";
  PlanTarget asked = target;
  asked.memory = 2 * kGiB;
  const PlanFit named = plan_fit(config.memory, asked);
  EXPECT_EQ(named.of, PlanFit::Of::process);
  EXPECT_EQ(named.chosen_pool(), 2 * kGiB - bytes_besides_pool(target));
  asked.memory = 9 * kGiB;
  const PlanFit too_much = plan_fit(config.memory, asked);
  EXPECT_EQ(too_much.bytes, 4 * kGiB);
  EXPECT_EQ(too_much.asked_bytes, 9 * kGiB);
  EXPECT_NE(too_much.to_text(target).find("not the 9.00 GiB asked for"), std::string::npos) << too_much.to_text(target);
}

TEST_F(PlanFitTest, NeededBytesAreOfWhatIsBound) {
  const RunConfig config = tiny({"device=cuda:0"});
  const PlanTarget target = card(config, 4 * kGiB);
  EXPECT_EQ(plan_fit(config.memory, target).needed_bytes(target, kMiB), limit_bytes_for(target, kMiB));
  EXPECT_EQ(on_cpu(tiny({"memory.budget=2MiB"})).needed_bytes(plan_target(tiny(), std::nullopt), kMiB), kMiB);
}

TEST_F(PlanFitTest, SharesThatTakeTooMuchAreRefused) {
  const RunConfig config = tiny({"memory={limits: {cpu: 4MiB}, logical: {cpu: [3MiB, 3MiB]}}"});
  EXPECT_THROW((void)on_cpu(config), OutOfMemory);
}

}  // namespace
}  // namespace bantam::run::plan_fit_test
