// Engines in one process do not see each other: two threads that train two models have the bits of each alone, in one
// runtime, in two, and on two logical devices; and memory of one is not counted in the other's report.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/public/small_training.h"

namespace bantam::side_by_side_test {
namespace {

constexpr int kUpdates = 30;

struct Pair {
  std::vector<float> first, second;
  bool operator==(const Pair&) const = default;
};

Pair alone() {
  Runtime one, other;
  return {testing::train_small(one, Device::cpu(), kUpdates, 1, 4),
          testing::train_small(other, Device::cpu(), kUpdates, 2, 6)};
}

/// The same two trainings at the same time.
Pair together(Runtime& one, Device first, Runtime& other, Device second) {
  Pair weights;
  {
    const std::jthread a([&] { weights.first = testing::train_small(one, first, kUpdates, 1, 4); });
    const std::jthread b([&] { weights.second = testing::train_small(other, second, kUpdates, 2, 6); });
  }
  return weights;
}

TEST(SideBySide, TwoRuntimes) {
  Runtime one({.threads = 2}), other({.threads = 1});
  EXPECT_EQ(together(one, Device::cpu(), other, Device::cpu()), alone());
}

TEST(SideBySide, OneRuntime) {
  Runtime runtime({.threads = 2});
  EXPECT_EQ(together(runtime, Device::cpu(), runtime, Device::cpu()), alone());
}

TEST(SideBySide, LogicalDevices) {
  Runtime runtime({.logical = {{"cpu", {4u << 20, 4u << 20}}}});
  EXPECT_EQ(together(runtime, Device::cpu().logical(0), runtime, Device::cpu().logical(1)), alone());
}

TEST(SideBySide, EachReportHasItsOwnMemoryOnly) {
  Runtime one, other({.limits = {{"cpu", 1u << 30}}});
  const Model model(one, Device::cpu(), testing::small_network(), {.seed = 1});
  EXPECT_GT(one.memory_report(Device::cpu()).stats.in_use_bytes, 0u);
  EXPECT_EQ(other.memory_report(Device::cpu()).stats.in_use_bytes, 0u);
  EXPECT_EQ(one.limit(Device::cpu()), 0u);
  EXPECT_EQ(other.limit(Device::cpu()), 1u << 30);
}

}  // namespace
}  // namespace bantam::side_by_side_test
