// Metrics as the numbers of a state file, and back.
#include "bantam/engine/metrics/metric.h"

#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/engine/train/regression.h"

namespace bantam::metric_test {
namespace {

const MetricPtr kRmse = std::make_shared<testing::RootMeanSquaredError>();
const std::vector<MetricPtr> kMetrics = {accuracy(), kRmse};  // the loss counts the first

TEST(MetricNumbers, ComeBackAsTheyWere) {
  const Metrics sum{.loss = 0.1, .accuracy = 1.0 / 3, .samples = 48, .values = {{kRmse, {9.5, 48}}}};
  const std::vector<double> numbers = numbers_of(sum);
  EXPECT_EQ(numbers, (std::vector<double>{48, 0.1, 1.0 / 3, 9.5, 48}));
  const Metrics read = metrics_from(numbers, kMetrics, "sums");
  EXPECT_EQ(read.loss, sum.loss);
  EXPECT_EQ(read.accuracy, sum.accuracy);
  EXPECT_EQ(read.samples, 48);
  ASSERT_EQ(read.values.size(), 1u);
  EXPECT_EQ(read.values[0].metric, kRmse);
  EXPECT_EQ(read.values[0].sums, sum.values[0].sums);
}

TEST(MetricNumbers, NoSamplesHaveNoValues) {
  const Metrics read = metrics_from(numbers_of({}), kMetrics, "sums");
  EXPECT_EQ(read.samples, 0);
  EXPECT_TRUE(read.values.empty());
}

TEST(MetricNumbers, AMergeGoesOnAsIfNothingHappened) {
  const Metrics first{.loss = 0.3, .accuracy = 0.7, .samples = 17, .values = {{kRmse, {1.1, 17}}}};
  const Metrics second{.loss = 0.1, .accuracy = 0.9, .samples = 5, .values = {{kRmse, {2.3, 5}}}};
  Metrics whole = first, resumed = metrics_from(numbers_of(first), kMetrics, "sums");
  merge(whole, second);
  merge(resumed, second);
  EXPECT_EQ(numbers_of(whole), numbers_of(resumed));
}

TEST(MetricNumbers, OthersAreRefusedByName) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& wrong : std::vector<std::vector<double>>{{},
                                                                           {1, 2},
                                                                           {1, 2, 3},
                                                                           {1, 2, 3, 4},
                                                                           {1, 2, 3, 4, 5, 6},
                                                                           {-1, 2, 3, 4, 5},
                                                                           {1e16, 2, 3, 4, 5},
                                                                           {kNan, 2, 3, 4, 5},
                                                                           {0, 0, 0, 4, 5}}) {
    try {
      (void)metrics_from(wrong, kMetrics, "trainer/sum");
      ADD_FAILURE() << wrong.size();
    } catch (const DataError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("trainer/sum holds ", 0), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace bantam::metric_test
