// The floor of a step is the longest of three, and says which.
#include "bantam/run/bench/step_limits.h"

#include "tests/run/run_fixture.h"

namespace bantam::run::step_limits_test {
namespace {

using StepLimitsTest = RunTest;

TEST_F(StepLimitsTest, TheLongestBounds) {
  const StepLimits bytes{.bytes_ms = 3, .flops_ms = 2, .chain_ms = 1};
  EXPECT_DOUBLE_EQ(bytes.floor_ms(), 3);
  EXPECT_STREQ(bytes.bound(), "bytes");
  EXPECT_STREQ((StepLimits{.bytes_ms = 1, .flops_ms = 2, .chain_ms = 1}).bound(), "flops");
  EXPECT_STREQ((StepLimits{.bytes_ms = 1, .flops_ms = 2, .chain_ms = 3}).bound(), "chain");
}

TEST_F(StepLimitsTest, RatesDivideTheWork) {
  const RunConfig config = tiny();
  const StepCase step{.batch = 8, .precision = config.precision};
  const StepMeasurement measured{.ms_per_step = 1};
  const MeasuredRates slow{.copy_bytes_per_s = 1e9, .flops_per_s = 1e9, .kernel_seconds = 1e-6};
  const MeasuredRates fast{.copy_bytes_per_s = 2e9, .flops_per_s = 4e9, .kernel_seconds = 1e-6};
  const StepLimits one = step_limits(config, step, measured, slow), other = step_limits(config, step, measured, fast);
  EXPECT_GT(one.bytes_ms, 0);
  EXPECT_GT(one.flops_ms, 0);
  EXPECT_NEAR(one.bytes_ms, 2 * other.bytes_ms, 1e-9);
  EXPECT_NEAR(one.flops_ms, 4 * other.flops_ms, 1e-9);
  EXPECT_EQ(one.chain_ms, 0) << "kernels are counted in captured steps only";
  const StepMeasurement captured{.ms_per_step = 1, .kernels = 50};
  EXPECT_NEAR(step_limits(config, step, captured, slow).chain_ms, 0.05, 1e-9);
}

}  // namespace
}  // namespace bantam::run::step_limits_test
