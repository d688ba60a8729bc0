// A range test's rates, what its losses say, and a whole test.
#include "bantam/run/find_lr.h"

#include <algorithm>
#include <cmath>

#include "bantam/base/error.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::find_lr_test {
namespace {

using RangeTestTest = RunTest;

TEST_F(RangeTestTest, RatesGrowByOneFactor) {
  const RangeTestOptions options{.from = 1e-4, .to = 1, .updates = 5};
  for (std::int64_t n = 0; n < 5; ++n)
    EXPECT_NEAR(range_test_rate(options, n), std::pow(10.0, static_cast<double>(n) - 4), 1e-12);
}

TEST_F(RangeTestTest, ReadsACurveByHand) {
  // Constant, then down in a straight line over the logarithm, then up until it is too large.
  std::vector<RangeTestPoint> points;
  for (int n = 0; n < 60; ++n) {
    const double loss = n < 20 ? 8.0 : n < 40 ? 8.0 - 0.35 * (n - 20) : 1.0 + 5.0 * (n - 40);
    points.push_back({.learning_rate = std::pow(10.0, -6 + n / 10.0), .loss = loss});
  }
  const RangeTest test = read_range_test(points);
  EXPECT_TRUE(test.diverged);
  EXPECT_LT(test.points.size(), 60u);
  EXPECT_DOUBLE_EQ(test.points[10].smoothed, 8) << "without the bias of the beginning";
  // smoothed[20] = 8; one update of 7.65 moves it by a tenth, but for the bias: 1/(1 - 0.9^22).
  EXPECT_NEAR(test.points[21].smoothed, 8 - 0.035 / (1 - std::pow(0.9, 22)), 1e-12);
  ASSERT_TRUE(test.steepest && test.tenth_of_minimum);
  const auto least = std::ranges::min_element(test.points, {}, &RangeTestPoint::smoothed);
  EXPECT_DOUBLE_EQ(*test.tenth_of_minimum, least->learning_rate / 10);
  EXPECT_GT(*test.steepest, points[25].learning_rate) << "the mean falls fastest once it has followed the line";
  EXPECT_LE(*test.steepest, points[40].learning_rate);
  EXPECT_DOUBLE_EQ(range_test_ceiling(test), 8 + (8 - least->smoothed) / 2);
  const RangeTest rising = read_range_test({{.learning_rate = 1, .loss = 1}, {.learning_rate = 2, .loss = 2}});
  EXPECT_FALSE(rising.steepest);
  EXPECT_FALSE(rising.diverged);
  const RangeTest lost = read_range_test({{.learning_rate = 1, .loss = NAN}});
  EXPECT_TRUE(lost.diverged && lost.points.empty() && !lost.tenth_of_minimum);
}

TEST_F(RangeTestTest, TrainsOverEpochsAndWritesNothing) {
  const RunConfig config = tiny({"train.mode=planned"});
  const auto files = [] {
    const auto here = std::filesystem::directory_iterator(std::filesystem::current_path());
    return std::distance(begin(here), end(here));
  };
  const auto before = files();
  const RangeTestOptions options{.from = 1e-6, .to = 0.1, .updates = 20, .threads = 1};
  const RangeTest test = range_test(config, options);
  ASSERT_EQ(test.points.size(), 20u) << "more than an epoch's 6";
  for (std::int64_t n = 0; n < 20; ++n)
    EXPECT_FLOAT_EQ(static_cast<float>(test.points[static_cast<std::size_t>(n)].learning_rate),
                    static_cast<float>(range_test_rate(options, n)));
  EXPECT_EQ(files(), before);
  const RangeTest again = range_test(config, options);
  for (std::size_t n = 0; n < 20; ++n) EXPECT_EQ(test.points[n].loss, again.points[n].loss);
  const RangeTest off_disk = range_test(
      tiny({"train.mode=planned",
            "data.pipeline=[{cache: disk}, {shuffle: {}}, {normalize: {scale: 0.0039}}, {batch: {size: 16}}]"}),
      options);
  for (std::size_t n = 0; n < 20; ++n) EXPECT_EQ(test.points[n].loss, off_disk.points[n].loss);
  EXPECT_EQ(files(), before);
}

// The loss of update 1 is of the weights that both begin with: by the seed, or made from the first images.
TEST_F(RangeTestTest, BeginsWithTheWeightsOfARun) {
  struct FirstLoss : Callback {
    void on_progress(const ProgressEvent& event) override {
      if (!loss && !event.metrics.empty()) loss = event.metrics.front().loss;
    }
    std::optional<double> loss;
  };
  std::vector<double> losses;
  for (const bool whitens : {false, true}) {
    const std::string initializer = whitens ? ", initializer: {whiten: {images: 50, epsilon: 1.0e-3}}" : "";
    const RunConfig config = tiny({"model.layers=[{conv2d: {filters: 24, kernel: 2, stride: 4" + initializer +
                                   "}}, relu, global_average_pool, {dense: {units: 10}}]"});
    FirstLoss of_run;
    Callback* const callbacks[] = {&of_run};
    (void)train(config, {.threads = 1, .folder = path(whitens ? "whitened" : "by-seed")}, callbacks);
    const RangeTest test = range_test(config, {.updates = 10, .threads = 1});
    ASSERT_TRUE(of_run.loss && !test.points.empty());
    EXPECT_EQ(test.points.front().loss, *of_run.loss) << whitens;
    losses.push_back(*of_run.loss);
  }
  EXPECT_NE(losses[0], losses[1]) << "whitening is another beginning";
}

TEST_F(RangeTestTest, EndsWhereTheLossDiverges) {
  const RangeTest test = range_test(tiny(), {.from = 1e-3, .to = 1e30, .updates = 60, .threads = 1});
  EXPECT_TRUE(test.diverged);
  EXPECT_LT(test.points.size(), 60u);
  ASSERT_FALSE(test.points.empty());
  for (const RangeTestPoint& point : test.points) EXPECT_TRUE(std::isfinite(point.smoothed));
}

TEST_F(RangeTestTest, RefusesRangesThatAreNone) {
  EXPECT_THROW((void)range_test(tiny(), {.from = 0, .to = 1}), ConfigError);
  EXPECT_THROW((void)range_test(tiny(), {.from = 1, .to = 0.1}), ConfigError);
  EXPECT_THROW((void)range_test(tiny(), {.updates = 9}), ConfigError);
}

}  // namespace
}  // namespace bantam::run::find_lr_test
