// Shuffles are permutations, pure in (seed, epoch), and as random as they say.
#include "bantam/data/pipeline/epoch_order.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace bantam {
namespace {

bool is_permutation_of_all(std::vector<std::int32_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<std::int32_t>(i)) return false;
  return true;
}

class EpochOrder : public ::testing::TestWithParam<std::int64_t> {};  // the buffer

TEST_P(EpochOrder, IsAPermutation) {
  for (const std::int64_t samples : {0, 1, 2, 7, 1000}) {
    const auto order = shuffled_order(samples, GetParam(), 5, 3);
    EXPECT_EQ(static_cast<std::int64_t>(order.size()), samples);
    EXPECT_TRUE(is_permutation_of_all(order)) << samples;
  }
}

TEST_P(EpochOrder, DependsOnSeedAndEpochOnly) {
  const auto order = shuffled_order(1000, GetParam(), 5, 3);
  EXPECT_EQ(order, shuffled_order(1000, GetParam(), 5, 3));
  if (GetParam() == 1) return;  // a window of one changes nothing
  EXPECT_NE(order, shuffled_order(1000, GetParam(), 5, 4));
  EXPECT_NE(order, shuffled_order(1000, GetParam(), 6, 3));
}

INSTANTIATE_TEST_SUITE_P(Buffers, EpochOrder, ::testing::Values(0, 1, 10, 999, 1000, 5000));

TEST(WindowedShuffle, DrawsOnlyFromTheWindow) {
  constexpr std::int64_t kBuffer = 16;
  const auto order = shuffled_order(500, kBuffer, 1, 0);
  // At draw i the window has seen samples below i + buffer.
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_LT(order[i], static_cast<std::int64_t>(i) + kBuffer);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST(WindowedShuffle, OfOneKeepsTheOrder) {
  const auto order = shuffled_order(50, 1, 1, 0);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// Over many epochs each of 4 samples comes first a quarter of the time: 4000 draws have a standard deviation of
// sqrt(4000·¼·¾) = 27.4 around 1000, so 137 is five of them.
TEST(FullShuffle, PutsEverySampleFirstEquallyOften) {
  std::vector<int> firsts(4);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch)
    ++firsts[static_cast<std::size_t>(shuffled_order(4, 0, 9, epoch)[0])];
  for (const int count : firsts) EXPECT_NEAR(count, 1000, 137);
}

}  // namespace
}  // namespace bantam
