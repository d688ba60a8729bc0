// Bins by hand, and lines of histograms.jsonl.
#include "bantam/run/log/histogram.h"

#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "bantam/base/json.h"
#include "bantam/run/log/histogram_lines.h"

namespace bantam::run::histogram_test {
namespace {

std::int64_t total(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::int64_t{0});
}

TEST(Histogram, BinsAreOfEqualWidthAndTheLastOneIsClosed) {
  std::vector<float> values(65);
  std::iota(values.begin(), values.end(), 0.0f);  // 0 … 64: one a bin, and 64 with 63
  const Histogram found = histogram_of(values);
  EXPECT_EQ(found.minimum, 0);
  EXPECT_EQ(found.maximum, 64);
  EXPECT_EQ(found.mean, 32);
  EXPECT_DOUBLE_EQ(found.deviation, std::sqrt((65.0 * 65.0 - 1) / 12));
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(found.edges[i], static_cast<double>(i));
    EXPECT_EQ(found.counts[i], i == 63 ? 2 : 1) << i;
  }
  EXPECT_EQ(found.sum_of_squares, 64.0 * 65 * 129 / 6);
}

TEST(Histogram, EveryValueLiesWithinItsEdges) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.1f, 3.0f);
  std::vector<float> values(20'000);
  for (float& value : values) value = normal(random);
  const Histogram found = histogram_of(values, 1.0 / 3);
  std::array<std::int64_t, Histogram::kBins> counts{};
  for (const float value : values) {
    const double scaled = value * (1.0 / 3);
    std::size_t bin = 0;
    while (bin + 1 < Histogram::kBins && scaled >= found.edges[bin + 1]) ++bin;
    ++counts[bin];
  }
  EXPECT_EQ(found.counts, counts);
  EXPECT_NEAR(found.deviation, 1.0, 0.03) << "three deviations of the deviation of 20,000 values";
}

TEST(Histogram, ValuesThatAreNotFiniteAreCountedApart) {
  const std::vector<float> values = {1, NAN, 2, INFINITY, -INFINITY};
  const Histogram found = histogram_of(values);
  EXPECT_EQ(found.finite, 2);
  EXPECT_EQ(found.not_finite, 3);
  EXPECT_EQ(found.maximum, 2);
  EXPECT_EQ(total(found), 2);
  EXPECT_EQ(total(histogram_of(std::vector<float>{NAN})), 0);
}

TEST(Histogram, EqualValuesHaveARangeAroundThem) {
  for (const float value : {0.0f, 1.0f, -3e38f, 1e-40f}) {
    const Histogram found = histogram_of(std::vector<float>(7, value));
    EXPECT_TRUE(std::ranges::is_sorted(found.edges, std::less_equal<>())) << value;
    EXPECT_LT(found.edges.front(), value);
    EXPECT_GT(found.edges.back(), value);
    EXPECT_EQ(found.counts[32], 7) << value;
    EXPECT_EQ(found.deviation, 0);
  }
}

TEST(HistogramLines, HaveTheKeysThatReadersExpect) {
  TensorHistogram of{.tensor = "stem/weight", .of_gradient = true};
  of.histogram = histogram_of(std::vector<float>{-0.1f, 0.2f, 0.05f});
  const nlohmann::json line = nlohmann::json::parse(histogram_line(100, of));
  EXPECT_EQ(line["update"], 100);
  EXPECT_EQ(line["tensor"], "stem/weight");
  EXPECT_EQ(line["kind"], "gradient");
  EXPECT_EQ(line["minimum"], -0.1);
  EXPECT_EQ(line["maximum"], 0.2);
  EXPECT_EQ(line["edges"].size(), 65u);
  EXPECT_EQ(line["counts"].size(), 64u);
  EXPECT_EQ(line["counts"].front(), 1);
  EXPECT_EQ(line["counts"].back(), 1);
}

TEST(HistogramLines, EdgesStayAscendingInANarrowRange) {
  const TensorHistogram of{.tensor = "norm/scale",
                           .histogram = histogram_of(std::vector<float>{1.0f, std::nextafter(1.0f, 2.0f)})};
  const nlohmann::json line = nlohmann::json::parse(histogram_line(1, of));
  for (std::size_t i = 0; i + 1 < 65; ++i) EXPECT_LT(line["edges"][i], line["edges"][i + 1]);
}

}  // namespace
}  // namespace bantam::run::histogram_test
