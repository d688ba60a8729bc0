// Lines of metrics.jsonl, and a place where they cannot be written.
#include "bantam/run/session/metrics_log.h"

#include <nlohmann/json.hpp>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run {
namespace {

class MetricsLogTest : public RunTest {
 protected:
  ProgressEvent updates(std::int64_t last, std::vector<double> losses) const {
    ProgressEvent event;
    event.epoch = 0;
    event.update = last;
    event.updates = 6;
    for (const double loss : losses) event.metrics.push_back({.loss = loss, .accuracy = 0.5, .samples = 16});
    return event;
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> found;
    const std::string text = read_file(path("metrics.jsonl"));
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      found.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return found;
  }
  BfcAllocator& memory() { return runtime_.allocator(Device::cpu()); }

  Runtime runtime_{RuntimeOptions{.threads = 1}};
  std::vector<std::string> warnings_;
  std::function<void(std::string_view)> warn_ = [this](std::string_view text) { warnings_.emplace_back(text); };
};

TEST_F(MetricsLogTest, ALineIsTheMeanOfItsUpdates) {
  MetricsLog log(path("metrics.jsonl"), 4, {accuracy()}, memory(), warn_);
  log.on_progress(updates(3, {1, 2, 3}));
  log.on_progress(updates(6, {6, 8, 10}));
  ASSERT_EQ(lines().size(), 2u) << "one at update 4, one at the epoch's end";
  EXPECT_DOUBLE_EQ(lines()[0]["loss"], 3.0);
  EXPECT_EQ(lines()[0]["update"], 4);
  EXPECT_DOUBLE_EQ(lines()[1]["loss"], 9.0);
  EXPECT_EQ(lines()[1]["samples"], 32);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MetricsLogTest, AResumedRunWritesTheLinesOfOneThatWasNeverStopped) {
  MetricsLog whole(path("whole.jsonl"), 4, {accuracy()}, memory(), warn_);
  whole.on_progress(updates(3, {1, 2, 3}));
  whole.on_progress(updates(6, {6, 8, 10}));
  whole.on_end();

  StateRegistry saved;
  MetricsLog first(path("metrics.jsonl"), 4, {accuracy()}, memory(), warn_);
  first.register_state(saved);
  first.on_progress(updates(3, {1, 2, 3}));
  first.on_end();
  EXPECT_EQ(lines().size(), 1u) << "a run that ends between two lines tells its last updates";
  EXPECT_EQ(first.bytes(), 0u) << "but a resumed one writes them in its own line";
  const std::vector<double> sums = saved.numbers()[0].get();
  first.on_progress(updates(4, {100}));  // after the state was saved, before the process was killed

  StateRegistry loaded;
  MetricsLog second(path("metrics.jsonl"), 4, {accuracy()}, memory(), warn_);
  second.register_state(loaded);
  loaded.numbers()[0].set(sums);
  second.cut(first.bytes());
  second.on_progress(updates(6, {6, 8, 10}));
  EXPECT_EQ(read_file(path("metrics.jsonl")), read_file(path("whole.jsonl")));
  EXPECT_TRUE(warnings_.empty());
  second.cut(1'000'000);
  EXPECT_EQ(warnings_.size(), 1u) << "a file that lacks lines is told";
  EXPECT_THROW(loaded.numbers()[0].set({1, 2}), DataError);
}

TEST_F(MetricsLogTest, LinesWaitUntilThereIsRoom) {
  MetricsLog log(path("later/metrics.jsonl"), 1, {accuracy()}, memory(), warn_);
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
}  // namespace bantam::run
