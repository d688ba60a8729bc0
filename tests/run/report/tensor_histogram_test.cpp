// Histograms: of tensors, and as a run logs them.
#include "bantam/run/report/tensor_histogram.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::tensor_histogram_test {
namespace {

class TensorHistogramTest : public RunTest {
 protected:
  static ReportedHistogram of(const std::vector<float>& values) {
    return histogram_of("w", host_tensor({std::ssize(values)}, values));
  }
  static std::string line(int update, const std::string& tensor) {
    return "{\"update\": " + std::to_string(update) + ", \"tensor\": \"" + tensor +
           "\", \"kind\": \"gradient\", \"minimum\": 0, \"maximum\": 2, \"mean\": 1, \"deviation\": 0.5, "
           "\"edges\": [0, 1, 2], \"counts\": [3, 4]}\n";
  }
  std::vector<ReportedHistogram> read(const std::string& text, std::size_t most) const {
    std::ofstream(path("histograms.jsonl")) << text;
    return read_histograms(path("histograms.jsonl"), most);
  }
};

using Numbers = std::vector<double>;

TEST_F(TensorHistogramTest, EveryFiniteValueIsInOneBin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ReportedHistogram made = of({0, 0.5f, 1, 1.5f, 4, nan, 3.99f});
  ASSERT_EQ(made.edges.size(), 65u);
  ASSERT_EQ(made.counts.size(), 64u);
  EXPECT_EQ(made.edges[8], 0.5);
  EXPECT_EQ(made.counts[8], 1) << "a value on an edge is in the bin after it";
  EXPECT_EQ(made.counts[63], 2) << "the largest value is in the last bin";
  EXPECT_EQ(std::accumulate(made.counts.begin(), made.counts.end(), 0.0), 6);
  EXPECT_EQ(made.minimum, 0);
  EXPECT_EQ(made.maximum, 4);
}

TEST_F(TensorHistogramTest, OneValueLiesInTheMiddle) {
  const ReportedHistogram made = of({2, 2, 2});
  EXPECT_EQ(made.edges.front(), 1.5);
  EXPECT_EQ(made.edges.back(), 2.5);
  EXPECT_EQ(made.counts[32], 3);
  EXPECT_TRUE(of({std::numeric_limits<float>::infinity()}).counts.empty());
}

TEST_F(TensorHistogramTest, UpdatesOfALogAreEvenlyChosen) {
  std::string text;
  for (int update = 100; update <= 10'000; update += 100) text += line(update, "a/weight") + line(update, "b/weight");
  const std::vector<ReportedHistogram> all = read(text + "{\"update\": 10", 1000);
  ASSERT_EQ(all.size(), 16u) << "8 updates of two tensors; the line under way is passed over";
  EXPECT_EQ(all.front().update, 100);
  EXPECT_EQ(all.back().update, 10'000);
  EXPECT_EQ(all.back().tensor, "b/weight");
  EXPECT_EQ(all.back().kind, "gradient");
  EXPECT_EQ(all.back().edges, (Numbers{0, 1, 2}));
  EXPECT_EQ(all.back().counts, (Numbers{3, 4}));
  EXPECT_EQ(read(text, 6).size(), 6u) << "three updates";
  const std::vector<ReportedHistogram> last = read(text, 1);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].update, 10'000) << "the last in any case";
  EXPECT_TRUE(read(text, 0).empty());
}

TEST_F(TensorHistogramTest, ADamagedLineIsNamed) {
  for (const char* wrong : {"{}\n",
                            "{\"update\": 1, \"tensor\": \"a\", \"kind\": \"weight\", \"minimum\": 0, \"maximum\": "
                            "1, \"mean\": 0, \"deviation\": 0, \"edges\": [0, 1], \"counts\": [1, 2]}\n"}) {
    try {
      (void)read(line(1, "a") + wrong, 10);
      FAIL() << "it was read: " << wrong;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("histograms.jsonl:2: expected"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(read_histograms(path("none.jsonl"), 10).empty());
}

}  // namespace
}  // namespace bantam::run::tensor_histogram_test
