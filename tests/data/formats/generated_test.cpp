// The generated set: the same for a seed whatever the threads, balanced, varied, and with no image shared between
// splits.
#include "bantam/data/formats/generated.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/data/support.h"

namespace bantam::generated_test {
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

template <class T>
std::span<const T> field_of(const Dataset& set, std::size_t field) {
  const std::span<const std::byte> bytes = set.field(field);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

TEST(Generated, OtherLabelsComeWithTheSameImages) {
  Runtime runtime;
  const GeneratedOptions plain{.train_samples = 40, .test_samples = 20};
  const DatasetSplits classes = generate_dataset(runtime, plain);
  for (const auto labels : {GeneratedLabels::soft, GeneratedLabels::pixels, GeneratedLabels::values}) {
    GeneratedOptions options = plain;
    options.labels = labels;
    const DatasetSplits other = generate_dataset(runtime, options);
    EXPECT_EQ(images_of(*other.train), images_of(*classes.train));
    EXPECT_EQ(images_of(*other.test), images_of(*classes.test));
  }
}

TEST(Generated, SoftLabelsAreSharesOfTwoClasses) {
  Runtime runtime;
  const DatasetSplits splits =
      generate_dataset(runtime, {.train_samples = 20, .test_samples = 10, .labels = GeneratedLabels::soft});
  EXPECT_EQ(splits.train->facts().targets.at(1), (SampleField{"targets", {10}, DType::float32}));
  const std::span<const float> shares = field_of<float>(*splits.train, 2);
  for (std::size_t i = 0; i < 20; ++i) {
    const auto label = static_cast<std::size_t>(splits.train->labels()[i]);
    for (std::size_t c = 0; c < 10; ++c)
      EXPECT_EQ(shares[i * 10 + c], c == label ? 0.8f : c == (label ^ 1) ? 0.2f : 0.0f) << i << ", " << c;
  }
}

TEST(Generated, PixelsAreOfTheFigureOrOfTheBackground) {
  Runtime runtime;
  const DatasetSplits splits =
      generate_dataset(runtime, {.train_samples = 100, .test_samples = 10, .labels = GeneratedLabels::pixels});
  EXPECT_EQ(splits.train->facts().targets.at(0), (SampleField{"labels", {32, 32}, DType::int32}));
  EXPECT_EQ(splits.train->class_names().size(), 11u);
  EXPECT_EQ(splits.train->class_names()[1], "disc");
  const std::span<const std::int32_t> classes = splits.train->labels();
  ASSERT_EQ(classes.size(), 100u * 1024);
  for (std::size_t i = 0; i < 100; ++i) {
    const auto image = classes.subspan(i * 1024, 1024);
    const auto figure = static_cast<std::int32_t>(i % 10 + 1);
    const auto inside = std::ranges::count(image, figure);
    EXPECT_EQ(std::ranges::count(image, 0) + inside, 1024) << i;
    EXPECT_GT(inside, 40) << i;
    EXPECT_LT(inside, 1000) << i;
    EXPECT_EQ(image[0], 0) << "a corner is no figure's";
  }
}

TEST(Generated, ValuesSayWhereTheFigureIs) {
  Runtime runtime;
  const GeneratedOptions options{.train_samples = 60, .test_samples = 10, .labels = GeneratedLabels::values};
  GeneratedOptions pixels = options;
  pixels.labels = GeneratedLabels::pixels;
  const DatasetSplits values = generate_dataset(runtime, options), masks = generate_dataset(runtime, pixels);
  const std::span<const float> places = field_of<float>(*values.train, 2);
  for (std::size_t i = 0; i < 60; i += 10) {  // discs: their pixels' mean is the centre, but for an occluder
    const auto image = masks.train->labels().subspan(i * 1024, 1024);
    double x = 0, y = 0, count = 0;
    for (std::size_t at = 0; at < 1024; ++at) {
      if (image[at] == 0) continue;
      x += (static_cast<double>(at % 32) + 0.5) / 16 - 1;
      y += (static_cast<double>(at / 32) + 0.5) / 16 - 1;
      ++count;
    }
    EXPECT_NEAR(static_cast<double>(places[i * 3]), x / count, 0.2) << i;
    EXPECT_NEAR(static_cast<double>(places[i * 3 + 1]), y / count, 0.2) << i;
    EXPECT_GE(places[i * 3 + 2], 0.5f);
    EXPECT_LE(places[i * 3 + 2], 0.95f);
  }
}

}  // namespace
}  // namespace bantam::generated_test
