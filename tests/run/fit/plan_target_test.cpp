// What a target takes beside a pool, there and back.
#include "bantam/run/fit/plan_target.h"

#include "tests/run/run_fixture.h"

namespace bantam::run::plan_target_test {
namespace {

using PlanTargetTest = RunTest;

PlanTarget gpu() {
  return {.profile = {.name = "test",
                      .total_bytes = std::uint64_t{8} << 30,
                      .overhead = {{"context", 300u << 20}, {"libraries", 100u << 20}}},
          .counts = true};
}

TEST_F(PlanTargetTest, OnTheCpuOnlyPoolsCount) {
  const PlanTarget target = plan_target(tiny(), std::nullopt);
  EXPECT_FALSE(target.counts);
  EXPECT_TRUE(target.machine);
  EXPECT_EQ(bytes_besides_pool(target), 0u);
  EXPECT_EQ(pool_bytes_under(target, 12345), 12345u);
  EXPECT_EQ(limit_bytes_for(target, 12345), 12345u);
}

TEST_F(PlanTargetTest, AProfileThatIsNamedIsNoMachine) {
  const PlanTarget target = plan_target(tiny({"device=cuda:0"}), gpu().profile);
  EXPECT_TRUE(target.counts);
  EXPECT_FALSE(target.machine);
  EXPECT_EQ(target.profile.name, "test");
}

TEST_F(PlanTargetTest, AProcessIsOverheadAndWholePages) {
  constexpr std::uint64_t kPage = 2u << 20;
  EXPECT_EQ(pool_in_pages(0), 0u);
  EXPECT_EQ(pool_in_pages(1), kPage);
  EXPECT_EQ(pool_in_pages(kPage), kPage);
  EXPECT_EQ(process_bytes(gpu(), kPage + 1), (400u << 20) + 2 * kPage);
  EXPECT_EQ(bytes_besides_pool(gpu()), (400u << 20) + kLateReserve);
  EXPECT_EQ(pool_bytes_under(gpu(), 1), 0u) << "nothing is left, rather than less";
}

TEST_F(PlanTargetTest, TheLeastLimitLeavesThePool) {
  for (const std::uint64_t pool : {std::uint64_t{1}, std::uint64_t{5} << 20, std::uint64_t{1} << 30})
    EXPECT_GE(pool_bytes_under(gpu(), limit_bytes_for(gpu(), pool)), pool);
}

}  // namespace
}  // namespace bantam::run::plan_target_test
