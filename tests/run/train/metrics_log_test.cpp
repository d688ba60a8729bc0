// Lines of metrics.jsonl, and a place where they cannot be written.
#include "bantam/run/train/metrics_log.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::metrics_log_test {
namespace {

class MetricsLogTest : public RunTest {
 protected:
  ProgressEvent updates(std::int64_t last, std::vector<double> losses) const {
    ProgressEvent event;
    event.epoch = 0;
    event.update = last;
    event.updates = 6;
    event.images_per_second = 1000;
    for (const double loss : losses) {
      event.metrics.push_back({.loss = loss, .accuracy = 0.5, .samples = 16});
      const auto value = static_cast<float>(loss);
      event.values.push_back({.learning_rate = value / 2, .gradient_norm = value * 4, .loss_scale = value * 8});
    }
    return event;
  }
  std::vector<nlohmann::json> lines(const char* file = "metrics.jsonl") const {
    std::vector<nlohmann::json> found;
    const std::string text = read_file(path(file));
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      found.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return found;
  }
  std::vector<nlohmann::json> without_clock(const char* file) const {
    std::vector<nlohmann::json> all = lines(file);
    for (nlohmann::json& line : all) line.erase("seconds");
    return all;
  }
  static RunConfig every(int updates) { return tiny({fmt::format("train.log_every={}", updates)}); }
  BfcAllocator& memory() { return runtime_.allocator(Device::cpu()); }

  Runtime runtime_{RuntimeOptions{.threads = 1}};
  std::vector<std::string> warnings_;
  std::function<void(std::string_view)> warn_ = [this](std::string_view text) { warnings_.emplace_back(text); };
};

TEST_F(MetricsLogTest, ALineIsTheMeanOfItsUpdates) {
  MetricsLog log(path("metrics.jsonl"), every(4), memory(), warn_);
  log.on_progress(updates(3, {1, 2, 3}));
  log.on_progress(updates(6, {6, 8, 10}));
  ASSERT_EQ(lines().size(), 2u) << "one at update 4, one at the epoch's end";
  EXPECT_DOUBLE_EQ(lines()[0]["loss"], 3.0);
  EXPECT_EQ(lines()[0]["update"], 4);
  EXPECT_DOUBLE_EQ(lines()[1]["loss"], 9.0);
  EXPECT_EQ(lines()[1]["samples"], 32);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MetricsLogTest, ALinesRateIsThatOfAllItsUpdates) {
  MetricsLog log(path("metrics.jsonl"), every(4), memory(), warn_);
  ProgressEvent slow = updates(3, {1, 2, 3}), fast = updates(6, {4, 5, 6});
  slow.images_per_second = 3 * 16 / 6.0;  // 6 seconds
  fast.images_per_second = 3 * 16 / 3.0;  // 3 seconds
  log.on_progress(slow);
  log.on_progress(fast);
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_DOUBLE_EQ(lines()[0]["images_per_s"], 4 * 16 / 7.0);
  EXPECT_DOUBLE_EQ(lines()[1]["images_per_s"], 2 * 16 / 2.0);
}

TEST_F(MetricsLogTest, AccuracyHasTheNameOfWhatItIs) {
  const auto line_of = [&](const char* file, const std::vector<std::string>& overrides) {
    MetricsLog log(path(file), tiny(overrides), memory(), warn_);
    log.on_progress(updates(1, {1}));
    return lines(file).at(0);
  };
  EXPECT_EQ(line_of("classes.jsonl", {})["accuracy"], 0.5);
  const nlohmann::json multi =
      line_of("multi.jsonl", {"data.labels=soft", "train.loss=binary_cross_entropy", "train.metrics=[accuracy]"});
  EXPECT_EQ(multi["binary_accuracy"], 0.5);
  EXPECT_FALSE(multi.contains("accuracy"));
  const nlohmann::json values = line_of("values.jsonl", {"data.labels=soft", "train.loss=mse"});
  EXPECT_FALSE(values.contains("accuracy") || values.contains("binary_accuracy")) << "nothing is right or wrong";
}

TEST_F(MetricsLogTest, ALineHasTheValuesOfItsLastUpdate) {
  MetricsLog log(path("metrics.jsonl"), every(2), memory(), warn_);
  log.begin(3600);
  log.on_progress(updates(4, {1, 2, 3, INFINITY}));
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_EQ(lines()[0]["learning_rate"], 1.0);
  EXPECT_EQ(lines()[0]["gradient_norm"], 8.0);
  EXPECT_EQ(lines()[0]["loss_scale"], 16.0);
  EXPECT_EQ(lines()[0]["images_per_s"], 1000.0);
  EXPECT_EQ(lines()[0]["peak_bytes"], memory().stats().peak_bytes);
  EXPECT_GE(lines()[0]["seconds"], 3600.0) << "earlier sessions count";
  EXPECT_LT(lines()[0]["seconds"], 3700.0);
  EXPECT_TRUE(lines()[1]["gradient_norm"].is_null()) << "JSON has no infinity";
}

TEST_F(MetricsLogTest, AResumedRunWritesTheLinesOfOneThatWasNeverStopped) {
  MetricsLog whole(path("whole.jsonl"), every(4), memory(), warn_);
  whole.on_progress(updates(3, {1, 2, 3}));
  whole.on_progress(updates(6, {6, 8, 10}));
  whole.on_end();

  StateRegistry saved;
  MetricsLog first(path("metrics.jsonl"), every(4), memory(), warn_);
  first.register_state(saved);
  first.on_progress(updates(3, {1, 2, 3}));
  first.on_end();
  EXPECT_EQ(lines().size(), 1u) << "a run that ends between two lines tells its last updates";
  const FileSum position = first.position();
  EXPECT_EQ(position.bytes, 0u) << "but a resumed one writes them in its own line";
  const std::vector<double> sums = saved.numbers()[0].get();
  first.on_progress(updates(4, {100}));  // after the state was saved, before the process was killed

  StateRegistry loaded;
  MetricsLog second(path("metrics.jsonl"), every(4), memory(), warn_);
  second.register_state(loaded);
  loaded.numbers()[0].set(sums);
  second.cut(position);
  second.on_progress(updates(6, {6, 8, 10}));
  EXPECT_EQ(without_clock("metrics.jsonl"), without_clock("whole.jsonl"));
  MetricsLog third(path("third.jsonl"), every(4), memory(), warn_);
  StateRegistry again;
  third.register_state(again);
  again.numbers()[0].set(sums);
  third.end_at(0, 3);
  EXPECT_EQ(lines("third.jsonl")[0]["gradient_norm"], 12.0) << "of an update before the run was killed";
  EXPECT_TRUE(warnings_.empty());
  second.cut({.bytes = 1'000'000});
  EXPECT_EQ(warnings_.size(), 1u) << "a file that lacks lines is told";
  EXPECT_THROW(loaded.numbers()[0].set({1, 2}), DataError);
}

TEST_F(MetricsLogTest, LinesWaitUntilThereIsRoom) {
  MetricsLog log(path("later/metrics.jsonl"), every(1), memory(), warn_);
  log.on_progress(updates(1, {1}));
  log.on_progress(updates(2, {1}));
  ASSERT_EQ(warnings_.size(), 1u) << "told once";
  EXPECT_NE(warnings_[0].find("cannot be written"), std::string::npos);
  std::filesystem::create_directory(path("later"));
  log.on_progress(updates(3, {1}));
  const std::string text = read_file(path("later/metrics.jsonl"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_NE(warnings_.back().find("is written again"), std::string::npos);
}

}  // namespace
}  // namespace bantam::run::metrics_log_test
