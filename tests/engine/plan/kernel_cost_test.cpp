// The roofline of one call: the longer of bytes and operations, and what beginning costs.
#include "bantam/engine/plan/kernel_cost.h"

#include <gtest/gtest.h>

namespace bantam::kernel_cost_test {
namespace {

using kernels::KernelKind;
using kernels::KernelWork;

constexpr DeviceRates kRates{.bytes_per_s = 1e10, .flops_per_s = 1e11};

double seconds(KernelWork work) { return predict_seconds(work, kRates); }

TEST(KernelCost, IsTheLongerOfBytesAndOperations) {
  const double nothing = seconds({});
  EXPECT_GT(nothing, 0.0) << "a kernel begins and ends";
  EXPECT_NEAR(seconds({.bytes = 1'000'000'000}) - nothing, 0.1, 1e-9) << "a pass reaches the copy rate";
  const KernelWork bytes{.kind = KernelKind::product, .bytes = 1'000'000'000},
      flops{.kind = KernelKind::product, .matrix_flops = 100'000'000'000};
  KernelWork both = bytes;
  both.matrix_flops = flops.matrix_flops;
  EXPECT_GT(seconds(flops), seconds(bytes));
  EXPECT_EQ(seconds(both), seconds(flops));
  EXPECT_GT(seconds({.kind = KernelKind::stencil, .flops = 1'000'000'000}), nothing) << "on no matrix units";
}

TEST(KernelCost, GrowsWithPassesAndFallsWithRates) {
  const KernelWork one{.bytes = 1000}, three{.bytes = 1000, .passes = 3};
  EXPECT_NEAR(seconds(three) - seconds(one), 2 * seconds({}), 1e-12);
  EXPECT_LT(predict_seconds(KernelWork{.bytes = 1'000'000}, {.bytes_per_s = 2e10, .flops_per_s = 1e11}),
            seconds({.bytes = 1'000'000}));
}

TEST(KernelCost, OfALogIsTheSum) {
  kernels::KernelLog log;
  EXPECT_EQ(predict_seconds(log, kRates), 0.0);
  log.note("add", "a", {.bytes = 3000});
  log.note("matmul", "b", {.kind = KernelKind::product, .bytes = 100, .flops = 10, .matrix_flops = 10});
  EXPECT_DOUBLE_EQ(predict_seconds(log, kRates), seconds(log.entries()[0].work) + seconds(log.entries()[1].work));
}

}  // namespace
}  // namespace bantam::kernel_cost_test
