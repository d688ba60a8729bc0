// Rates of this machine's CPU are rates: positive, and of the right size.
#include "bantam/run/bench/measure_rates.h"

#include "tests/run/run_fixture.h"

namespace bantam::run::measure_rates_test {
namespace {

TEST(MeasureRates, AreOfThisMachine) {
  Runtime runtime({.threads = 1});
  const Context context = Context::make(runtime, Device::cpu());
  const double copy = measure_copy_rate(context), flops = measure_matmul_rate(context, DType::float32),
               kernel = measure_kernel_seconds(context);
  EXPECT_GT(copy, 1e7);
  EXPECT_LT(copy, 1e13);
  EXPECT_GT(flops, 1e7);
  EXPECT_LT(flops, 1e14);
  EXPECT_GT(kernel, 0);
  EXPECT_LT(kernel, 0.1);
  EXPECT_EQ(runtime.allocator(Device::cpu()).stats().in_use_bytes, 0u) << "all is released";
}

TEST(MeasureRates, NeedMemory) {
  Runtime runtime({.threads = 1, .limits = {{"cpu", 1u << 20}}});
  EXPECT_THROW((void)measure_copy_rate(Context::make(runtime, Device::cpu())), OutOfMemory);
}

}  // namespace
}  // namespace bantam::run::measure_rates_test
