// The arithmetic of batch sizes, with numbers worked out by hand.
#include <gtest/gtest.h>

#include "bantam/engine/plan/step_cost.h"

namespace bantam::update_cost_test {
namespace {

/// 0.1 s whatever the batch, and 2 ms a sample.
constexpr UpdateCost kCost{.sample_seconds = 2e-3, .fixed_seconds = 0.1};

TEST(UpdateCostByHand, ImagesPerSecond) {
  EXPECT_DOUBLE_EQ(kCost.images_per_s(50), 250);    // 50 in 0.1 + 0.1 s
  EXPECT_DOUBLE_EQ(kCost.images_per_s(150), 375);   // 150 in 0.1 + 0.3 s
  EXPECT_DOUBLE_EQ(kCost.images_per_s(4950), 495);  // of 500 at most
}

TEST(UpdateCostByHand, WhatTheLargestBatchHasMore) {
  EXPECT_DOUBLE_EQ(kCost.gain_beyond(50), 1.0);
  EXPECT_DOUBLE_EQ(kCost.gain_beyond(500), 0.1);
}

TEST(UpdateCostByHand, TheLeastBatchThatIsEnough) {
  EXPECT_EQ(kCost.enough_batch(0.5), 100);
  EXPECT_EQ(kCost.enough_batch(0.3), 167) << "rounded up";
  EXPECT_EQ(kCost.enough_batch(1000), 1);
  EXPECT_EQ((UpdateCost{.sample_seconds = 2e-3, .fixed_seconds = 0}.enough_batch(0.01)), 1) << "nothing to share";
}

}  // namespace
}  // namespace bantam::update_cost_test
