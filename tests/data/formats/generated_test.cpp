// The generated set: the same for a seed whatever the threads, balanced, varied, and with no image shared between
// splits.
#include "bantam/data/formats/generated.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/data/support.h"

namespace bantam {
namespace {

using testing::DatasetSplits;

DatasetSplits generate_dataset(Runtime& runtime, const GeneratedOptions& options) {
  return testing::read_splits(runtime, generated_readers(options));
}

std::vector<std::uint8_t> images_of(const Dataset& set) { return {set.images().begin(), set.images().end()}; }

constexpr std::size_t kImage = 32 * 32 * 3;

TEST(Generated, IsTheSameForAnyNumberOfThreads) {
  const GeneratedOptions options{.train_samples = 203, .test_samples = 101};
  Runtime one({.threads = 1}), three({.threads = 3});
  const DatasetSplits a = generate_dataset(one, options), b = generate_dataset(three, options);
  EXPECT_EQ(images_of(*a.train), images_of(*b.train));
  EXPECT_EQ(images_of(*a.test), images_of(*b.test));
}

TEST(Generated, AnImageDoesNotDependOnHowManyThereAre) {
  Runtime runtime;
  const DatasetSplits few = generate_dataset(runtime, {.train_samples = 20, .test_samples = 10});
  const DatasetSplits many = generate_dataset(runtime, {.train_samples = 200, .test_samples = 50});
  const auto start = many.train->images().first(20 * kImage);
  EXPECT_EQ(images_of(*few.train), std::vector<std::uint8_t>(start.begin(), start.end()));
}

TEST(Generated, SeedsAndSplitsDiffer) {
  Runtime runtime;
  const DatasetSplits a = generate_dataset(runtime, {.train_samples = 50, .test_samples = 50, .seed = 1});
  const DatasetSplits b = generate_dataset(runtime, {.train_samples = 50, .test_samples = 50, .seed = 2});
  EXPECT_NE(images_of(*a.train), images_of(*b.train));
  EXPECT_NE(images_of(*a.train), images_of(*a.test));
  std::set<std::string> distinct;
  for (const Dataset* set : {a.train.get(), a.test.get(), b.train.get(), b.test.get()})
    for (std::size_t i = 0; i < 50; ++i)
      distinct.emplace(reinterpret_cast<const char*>(set->images().data()) + i * kImage, kImage);
  EXPECT_EQ(distinct.size(), 200u);
}

TEST(Generated, LabelsAreBalanced) {
  Runtime runtime;
  const DatasetSplits splits = generate_dataset(runtime, {.train_samples = 100, .test_samples = 30});
  std::vector<int> counts(10);
  for (const std::int32_t label : splits.train->labels()) ++counts.at(static_cast<std::size_t>(label));
  EXPECT_EQ(counts, std::vector<int>(10, 10));
  EXPECT_EQ(splits.train->class_names().size(), 10u);
}

// Colours are drawn evenly over [0, 255] in every channel, so the mean lies near the middle, and contrast is high.
TEST(Generated, PixelsUseTheirRange) {
  Runtime runtime;
  const DatasetSplits splits = generate_dataset(runtime, {.train_samples = 500, .test_samples = 1});
  double sum = 0, squares = 0;
  const auto images = splits.train->images();
  for (const std::uint8_t v : images) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto count = static_cast<double>(images.size());
  const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
  // 500 base colours of deviation 74 a channel: their mean is within 5·74/sqrt(1500) = 10 of the middle; clipping
  // moves it little.
  EXPECT_NEAR(mean, 127.5, 14.0);
  EXPECT_GT(deviation, 50.0);
  EXPECT_LT(deviation, 100.0);
}

}  // namespace
}  // namespace bantam
