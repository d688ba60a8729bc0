// Curves of metrics.jsonl: places of updates over epochs, evaluations, a half-written line, and thinning.
#include "bantam/run/train/metrics_history.h"

#include <algorithm>
#include <fstream>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::metrics_history_test {
namespace {

class MetricsHistoryTest : public RunTest {
 protected:
  MetricsHistory read(const std::string& text, std::size_t most_points = 100) const {
    std::ofstream(path("metrics.jsonl")) << text;
    return MetricsFile(path("metrics.jsonl")).read(most_points);
  }
};

using Numbers = std::vector<double>;

TEST_F(MetricsHistoryTest, UpdatesAreCountedOverEpochs) {
  const MetricsHistory history = read(R"({"kind":"update","epoch":1,"update":2,"loss":3.0,"samples":8,"seconds":1.0}
{"kind":"evaluation","epoch":1,"update":3,"validation_loss":2.5,"validation_samples":9}
{"kind":"update","epoch":1,"update":4,"loss":2.0,"samples":8,"seconds":2.0}
{"kind":"epoch","epoch":1,"loss":2.6,"validation_loss":2.25,"validation_samples":9,"data_wait_share":0.5,"images_per_s":9}
{"kind":"update","epoch":2,"update":4,"loss":1.0,"samples":8,"seconds":4.5}
{"kind":"test","updates":8,"test_loss":0.75,"test_samples":7}
{"kind":"update","epoch":2,"update":)");
  const MetricCurve* loss = history.find("loss");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->updates, (Numbers{2, 4, 8}));
  EXPECT_EQ(loss->values, (Numbers{3, 2, 1})) << "the epoch's mean is none of the updates'";
  EXPECT_EQ(loss->seconds, (Numbers{1, 2, 4.5}));
  const MetricCurve* held_out = history.find("validation_loss");
  ASSERT_NE(held_out, nullptr);
  EXPECT_EQ(held_out->updates, (Numbers{3, 4}));
  EXPECT_EQ(held_out->values, (Numbers{2.5, 2.25}));
  EXPECT_EQ(history.epoch_loss, std::pair(std::int64_t{1}, 2.6));
  EXPECT_EQ(history.find("data_wait_share")->values, Numbers{0.5});
  EXPECT_EQ(history.find("samples"), nullptr);
  EXPECT_EQ(history.find("validation_samples"), nullptr);
  EXPECT_EQ(history.test.at("loss"), 0.75);
  EXPECT_EQ(history.updates, 8);
  EXPECT_EQ(history.seconds, 4.5);
  EXPECT_EQ(history.updates_per_epoch, 4);
}

TEST_F(MetricsHistoryTest, WhatIsNoNumberIsNoPoint) {
  const MetricsHistory history = read(R"({"kind":"update","epoch":1,"update":1,"loss":null}
{"kind":"update","epoch":1,"update":2,"loss":0.5}
)");
  EXPECT_EQ(history.find("loss")->updates, Numbers{2});
  EXPECT_EQ(history.epoch_loss, std::nullopt) << "no epoch has ended";
}

TEST_F(MetricsHistoryTest, ADamagedLineIsNamed) {
  try {
    (void)read("{\"kind\":\"test\"}\nloss 3\n");
    FAIL() << "it was read";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:2: expected a JSON object"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(MetricsFile(path("none.jsonl")).read(10).curves.empty());
}

TEST_F(MetricsHistoryTest, AGrowingFileIsReadOn) {
  const std::string first = "{\"kind\":\"update\",\"epoch\":1,\"update\":1,\"loss\":3}\n";
  const std::string second = "{\"kind\":\"update\",\"epoch\":1,\"update\":2,\"loss\":2}\n";
  MetricsFile file(path("metrics.jsonl"));
  EXPECT_TRUE(file.read(10).curves.empty()) << "it is not there yet";
  std::ofstream(path("metrics.jsonl")) << first << second.substr(0, 20);
  EXPECT_EQ(file.read(10).find("loss")->values, Numbers{3});
  std::ofstream(path("metrics.jsonl"), std::ios::app) << second.substr(20);
  EXPECT_EQ(file.read(10).find("loss")->values, (Numbers{3, 2}));
  std::ofstream(path("metrics.jsonl")) << second;
  EXPECT_EQ(file.read(10).find("loss")->values, Numbers{2}) << "another run's, from its beginning";
}

TEST_F(MetricsHistoryTest, ALongLogIsKeptInShort) {
  std::string text;
  for (int i = 1; i <= 50'000; ++i)
    text += "{\"kind\":\"update\",\"epoch\":1,\"update\":" + std::to_string(i) +
            ",\"loss\":" + (i == 777 ? "50" : "0.5") + "}\n";
  const MetricsHistory history = read(text, 1'000'000);
  const MetricCurve& loss = *history.find("loss");
  EXPECT_LT(loss.values.size(), 25'000u);
  EXPECT_EQ(loss.points, 50'000u);
  EXPECT_EQ(loss.updates.back(), 50'000);
  EXPECT_EQ(std::ranges::max(loss.values), 50);
}

TEST_F(MetricsHistoryTest, ThinningKeepsEndsAndExtremes) {
  MetricCurve curve{.name = "loss"};
  for (int i = 0; i < 10'000; ++i) {
    curve.updates.push_back(i + 1);
    curve.seconds.push_back(i);
    curve.values.push_back(i == 4'321 ? 99 : i == 7'000 ? -99 : (i * 37 % 101) / 101.0);
  }
  const MetricCurve thin = thinned(curve, 200);
  EXPECT_LE(thin.values.size(), 200u);
  EXPECT_GE(thin.values.size(), 150u);
  EXPECT_EQ(thin.points, 10'000u);
  EXPECT_EQ(thin.updates.front(), 1);
  EXPECT_EQ(thin.updates.back(), 10'000);
  EXPECT_TRUE(std::ranges::is_sorted(thin.updates));
  EXPECT_EQ(std::ranges::max(thin.values), 99);
  EXPECT_EQ(std::ranges::min(thin.values), -99);
  EXPECT_EQ(thin.updates[static_cast<std::size_t>(std::ranges::max_element(thin.values) - thin.values.begin())], 4'322);
  EXPECT_EQ(thinned(thin, 200).values, thin.values) << "a curve that is short enough stays as it is";
}

}  // namespace
}  // namespace bantam::run::metrics_history_test
