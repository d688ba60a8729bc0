// The kernels' self-test, on every device: it passes where the kernels are right, and its bounds are tight.
#include "bantam/run/doctor/self_test.h"

#include <cmath>

#include <gtest/gtest.h>

namespace bantam::run::self_test_test {
namespace {

void expect_sound(Device device) {
  Runtime runtime;
  const std::vector<KernelCheck> checks = check_kernels(runtime, device);
  EXPECT_GE(checks.size(), 30u);
  for (const KernelCheck& check : checks) {
    SCOPED_TRACE(check.kernel + " " + std::string(to_string(check.dtype)));
    EXPECT_TRUE(check.passed()) << check.error << " of " << check.tolerance << " " << check.failure;
    // A result without its last digits, or one term in a hundred missing, is found.
    EXPECT_LT(check.tolerance, check.dtype == DType::bfloat16 ? 1e-2 : 1e-3);
  }
}

TEST(SelfTest, Passes_cpu) { expect_sound(Device::cpu()); }

TEST(SelfTest, Passes_cuda) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  expect_sound(Device::cuda(0));
}

TEST(SelfTest, TellsWrongResults) {
  EXPECT_FALSE((KernelCheck{.error = 2e-3, .tolerance = 1e-3}.passed()));
  EXPECT_FALSE((KernelCheck{.error = HUGE_VAL, .tolerance = 1e-3}.passed()));
  EXPECT_FALSE((KernelCheck{.tolerance = 1e-3, .failure = "no such kernel"}.passed()));
}

}  // namespace
}  // namespace bantam::run::self_test_test
