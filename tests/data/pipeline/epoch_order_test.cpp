// Shuffles are permutations, pure in (seed, epoch), and as random as they say.
#include "bantam/data/pipeline/epoch_order.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace bantam::epoch_order_test {
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

TEST(ConsecutiveOrder, IsARowOfWholeEpochs) {
  const ShuffleOptions shuffle{.buffer = 0, .seed = std::nullopt};
  const auto row = consecutive_order(10, 0, 25, &shuffle, 5);
  const auto epoch = [&](std::int64_t e) { return shuffled_order(10, 0, 5, e); };
  EXPECT_TRUE(std::equal(row.begin(), row.begin() + 10, epoch(0).begin()));
  EXPECT_EQ(std::vector<std::int32_t>(row.begin() + 10, row.begin() + 20), epoch(1));
  EXPECT_EQ(consecutive_order(10, 20, 10, &shuffle, 5), epoch(2));
  EXPECT_EQ(consecutive_order(10, 7, 5, &shuffle, 5), std::vector<std::int32_t>(row.begin() + 7, row.begin() + 12));
  EXPECT_EQ(consecutive_order(3, 2, 5, nullptr, 5), (std::vector<std::int32_t>{2, 0, 1, 2, 0}));
  const ShuffleOptions own{.buffer = 0, .seed = 9};
  EXPECT_EQ(consecutive_order(10, 0, 10, &own, 5), shuffled_order(10, 0, 9, 0));
}

std::vector<std::int64_t> counts_of(const std::vector<std::int32_t>& order, std::size_t samples) {
  std::vector<std::int64_t> counts(samples);
  for (const std::int32_t sample : order) ++counts[static_cast<std::size_t>(sample)];
  return counts;
}

TEST(WeightedOrder, DrawsByWeightRoundedUpOrDown) {
  const SampleWeights weights{.weights = {0, 1, 2, 0.25f, 5.5f, 0}, .groups = {}};
  std::vector<double> together(6);
  constexpr int kEpochs = 400;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = weighted_order(weights, 35, 3, epoch);
    ASSERT_EQ(order.size(), 35u);
    const std::vector<std::int64_t> counts = counts_of(order, 6);
    for (std::size_t i = 0; i < 6; ++i) {
      const double wanted = 35 * weights.weights[i] / 8.75;
      EXPECT_GE(static_cast<double>(counts[i]), std::floor(wanted)) << i;
      EXPECT_LE(static_cast<double>(counts[i]), std::ceil(wanted)) << i;
      together[i] += static_cast<double>(counts[i]) / kEpochs;
    }
  }
  // A count is rounded up with probability p: its mean over the epochs deviates by sqrt(p (1 - p) / 400) <= 0.025.
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(together[i], 35 * weights.weights[i] / 8.75, 5 * 0.025) << i;
  EXPECT_EQ(weighted_order(weights, 35, 3, 7), weighted_order(weights, 35, 3, 7));
  EXPECT_NE(weighted_order(weights, 35, 3, 7), weighted_order(weights, 35, 3, 8));
  EXPECT_NE(weighted_order(weights, 35, 3, 7), weighted_order(weights, 35, 4, 7));
}

TEST(WeightedOrder, BalancedClassesComeEquallyOften) {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 1000; ++i) labels.push_back(i < 20 ? 2 : i < 300 ? 0 : 1);
  const SampleWeights weights = balanced_weights(labels);
  for (int epoch = 0; epoch < 20; ++epoch) {
    std::vector<std::int64_t> classes(3);
    const auto order = weighted_order(weights, 600, 1, epoch);
    for (const std::int32_t sample : order)
      ++classes[static_cast<std::size_t>(labels[static_cast<std::size_t>(sample)])];
    for (const std::int64_t count : classes) EXPECT_NEAR(static_cast<double>(count), 200, 1) << epoch;
    const std::vector<std::int64_t> counts = counts_of(order, 1000);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(static_cast<double>(counts[i]), 10, 1) << i;
    const auto in_first_half = std::count_if(order.begin(), order.begin() + 300, [](std::int32_t i) { return i < 20; });
    EXPECT_NEAR(static_cast<double>(in_first_half), 100, 50) << epoch;  // 6 deviations: classes are mixed
  }
}

}  // namespace
}  // namespace bantam::epoch_order_test
