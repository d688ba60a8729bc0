// Histograms of a run: of which tensors and updates, without an effect on the training, whole after a resume.
#include "bantam/run/log/run_logs.h"

#include <cstring>
#include <map>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/protobuf.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/log/event_records.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_logs_test {
namespace {

class RunLogsTest : public RunTest {
 protected:
  Outcome begin(const std::string& name, const std::vector<std::string>& overrides = {},
                std::function<bool()> stop = {}) {
    return train(tiny(overrides), {.threads = 1, .folder = path(name), .stop = std::move(stop)});
  }
  Outcome resume(const std::string& name, const std::vector<std::string>& overrides = {}) {
    RunDirectory folder = RunDirectory::open(path(name));
    return train(read_run_config(folder.config(), overrides), {.threads = 1}, {}, {.resume = &folder});
  }
  std::filesystem::path events_path(const std::string& name, const char* part = "train") const {
    return path(name) / "tensorboard" / part / "events.out.tfevents.bantam";
  }
  /// Step and values of each event, sorted (histograms come when they are computed), but for what a clock or the memory
  /// says.
  std::vector<std::pair<std::int64_t, std::string>> events(const std::string& name, const char* part = "train") const {
    std::vector<std::pair<std::int64_t, std::string>> found;
    const std::string text = read_file(events_path(name, part));
    for (std::size_t at = 0; at < text.size();) {
      std::uint64_t length = 0;
      std::memcpy(&length, text.data() + at, sizeof(length));
      const std::string record = text.substr(at, length + 16);
      EXPECT_EQ(record, event_record(record.substr(12, length)));
      found.push_back(contents(std::string_view(record).substr(12, length)));
      at += record.size();
    }
    std::ranges::sort(found);
    return found;
  }
  static std::pair<std::int64_t, std::string> contents(std::string_view event) {
    std::pair<std::int64_t, std::string> found;
    ProtoReader fields(event);
    while (const auto field = fields.next()) {
      if (field->number == 2) found.first = field->as_integer();
      if (field->number != 5) continue;
      ProtoReader values(field->as_bytes());
      while (const auto value = values.next()) {
        const std::string text(value->as_bytes());
        const bool of_session = [&] {
          for (const char* tag : {"seconds", "images_per_s", "data_wait_share", "_bytes", "_hparams_"})
            if (text.substr(0, 40).find(tag) != std::string::npos) return true;
          return false;
        }();
        if (!of_session) found.second += text;
      }
    }
    return found;
  }
  std::string histograms(const std::string& name) const { return read_file(path(name) / "histograms.jsonl"); }
  std::vector<nlohmann::json> lines(const std::string& name) const {
    std::vector<nlohmann::json> found;
    const std::string text = histograms(name);
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
      found.push_back(nlohmann::json::parse(text.substr(begin, text.find('\n', begin) - begin)));
    return found;
  }
  static double sum_of_squares(const nlohmann::json& histogram) {
    double count = 0;
    for (const std::int64_t bin : histogram["counts"]) count += static_cast<double>(bin);
    const double mean = histogram["mean"], deviation = histogram["deviation"];
    return count * (mean * mean + deviation * deviation);
  }
  /// Of an update counted over all epochs, by metrics.jsonl.
  double logged_norm(const std::string& name, std::int64_t updates_per_epoch, std::int64_t update) const {
    for (const nlohmann::json& line : lines_without_clock(read_file(path(name) / "metrics.jsonl")))
      if (line["kind"] == "update" &&
          (line["epoch"].get<std::int64_t>() - 1) * updates_per_epoch + line["update"].get<std::int64_t>() == update)
        return line["gradient_norm"];
    return 0;
  }
};

TEST_F(RunLogsTest, WeightsAndGradientsOfEachUpdateThatIsDue) {
  begin("r", {"log.histograms=5"});
  std::map<std::pair<int, std::string>, int> counts;  // by update and kind
  for (const nlohmann::json& line : lines("r")) ++counts[{line["update"], line["kind"]}];
  const std::map<std::pair<int, std::string>, int> expected = {
      {{5, "weight"}, 6}, {{5, "gradient"}, 6}, {{10, "weight"}, 6}, {{10, "gradient"}, 6}};
  EXPECT_EQ(counts, expected) << "12 updates; a kernel, a bias, scale, shift, and the head's two";
}

TEST_F(RunLogsTest, AreOfTheWeightsThatAreSaved) {
  begin("r", {"log.histograms=12"});
  const SafetensorsFile weights = read_safetensors(path("r/weights.safetensors"));
  int compared = 0;
  for (const nlohmann::json& line : lines("r")) {
    if (line["kind"] != "weight") continue;
    const HostTensor& tensor = weights.tensors.at(line["tensor"]);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    const Histogram found = histogram_of(values);
    EXPECT_EQ(line["mean"], found.mean);
    EXPECT_EQ(line["deviation"], found.deviation);
    EXPECT_EQ(line["counts"], nlohmann::json(found.counts));
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

TEST_F(RunLogsTest, GradientsAreThoseOfTheLoggedNorm) {
  const std::vector<std::vector<std::string>> cases = {
      {"name=plain"},
      {"name=half", "precision=mixed_float16"},
      {"name=accumulated", "train.accumulate=2"},
      {"name=clipped", "train.clip_norm=0.01"},
      {"name=frozen", "train.groups=[{match: \"conv2d/*\", freeze: true}]"}};
  for (std::vector<std::string> overrides : cases) {
    const std::string name = overrides[0].substr(5);
    overrides[0] = "log.histograms=5";
    begin(name, overrides);
    double squares = 0;
    std::size_t weights = 0, gradients = 0;
    for (const nlohmann::json& line : lines(name)) {
      if (line["update"] != 5) continue;
      ++(line["kind"] == "weight" ? weights : gradients);
      if (line["kind"] == "gradient") squares += sum_of_squares(line);
    }
    EXPECT_EQ(weights, 6u) << name;
    EXPECT_EQ(gradients, name == "frozen" ? 4u : 6u) << name;
    // The norm is a float32 sum of some hundred squares in another order.
    EXPECT_NEAR(std::sqrt(squares) / logged_norm(name, name == "accumulated" ? 3 : 6, 5), 1.0, 1e-5) << name;
  }
}

TEST_F(RunLogsTest, ChangeNoBitOfTheTraining) {
  begin("plain");
  begin("watched", {"log.histograms=1"});
  EXPECT_EQ(read_file(path("plain/weights.safetensors")), read_file(path("watched/weights.safetensors")));
  EXPECT_EQ(lines_without_clock(read_file(path("plain/metrics.jsonl"))),
            lines_without_clock(read_file(path("watched/metrics.jsonl"))));
  EXPECT_FALSE(std::filesystem::exists(path("plain/histograms.jsonl")));
}

TEST_F(RunLogsTest, AResumedRunHasTheLinesOfOneThatWasNeverStopped) {
  const std::vector<std::string> overrides = {"log.histograms=2", "checkpoint={every: 3updates, min_interval: 0s}"};
  begin("whole", overrides);
  const Outcome stopped = begin("r", overrides, [asked = 0]() mutable { return ++asked > 9; });
  ASSERT_TRUE(stopped.result.stopped);
  // Killed later: lines after the checkpoint are there, of updates that are repeated.
  write_file_atomically(path("r/histograms.jsonl"), histograms("r") + "{\"update\": 12}\n");
  resume("r");
  EXPECT_EQ(histograms("r"), histograms("whole"));
}

TEST_F(RunLogsTest, EventsOfAResumedRunAreThoseOfOneThatWasNeverStopped) {
  const std::vector<std::string> overrides = {"log={tensorboard: true, histograms: 4, images: 2}",
                                              "checkpoint={every: 3updates, min_interval: 0s}", "train.log_every=4"};
  begin("whole", overrides);
  const Outcome stopped = begin("r", overrides, [asked = 0]() mutable { return ++asked > 9; });
  ASSERT_TRUE(stopped.result.stopped);
  for (const char* part : {"train", "validation"})
    if (std::filesystem::exists(events_path("r", part)))
      write_file_atomically(events_path("r", part),
                            read_file(events_path("r", part)) + event_record("of a session that was killed"));
  resume("r");
  const auto whole = events("whole"), resumed = events("r");
  EXPECT_EQ(whole.size(), 5u + 4 + 2 + 3 + 1)
      << "version, graph, hparams, config, pictures; lines of updates 4, 6, 10 and 12, epochs, histograms, the end";
  EXPECT_TRUE(resumed == whole);
  EXPECT_EQ(events("whole", "validation").size(), 1u + 2) << "version, and an evaluation an epoch";
  EXPECT_TRUE(events("r", "validation") == events("whole", "validation"));
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
}

TEST_F(RunLogsTest, TrainingAndValidationHaveOneNameForACurve) {
  begin("r", {"log={tensorboard: true, images: 0}"});
  const auto has = [&](const char* part, std::string_view tag) {
    for (const auto& [step, text] : events("r", part))
      if (text.find(tag) != std::string::npos) return true;
    return false;
  };
  for (const char* part : {"train", "validation"}) {
    EXPECT_TRUE(has(part, "epoch/loss")) << part;
    EXPECT_TRUE(has(part, "epoch/accuracy")) << part;
    EXPECT_FALSE(has(part, "validation_loss")) << part;
    EXPECT_FALSE(has(part, "epoch/epoch")) << part;
  }
  EXPECT_FALSE(has("train", "update/update"));
  EXPECT_TRUE(has("train", "update/loss"));
}

TEST_F(RunLogsTest, ARunThatDidNotBeginHasNoFiles) {
  struct Throws : Callback {
    bool observes() const override { return true; }
    void on_begin() override { throw DataError("at once"); }
  } throws;
  Callback* const callbacks[] = {&throws};
  EXPECT_THROW(train(tiny({"log.tensorboard=true"}), {.threads = 1, .folder = path("r")}, callbacks), DataError);
  EXPECT_FALSE(std::filesystem::exists(path("r/tensorboard")));
  begin("r", {"log.tensorboard=true"});
  EXPECT_TRUE(std::filesystem::exists(events_path("r")));
}

TEST_F(RunLogsTest, MayBeginWithASessionAndEndWithOne) {
  begin("r", {"train.max_updates=4"});
  resume("r", {"train.max_updates=8", "log.histograms=2"});
  EXPECT_EQ(lines("r").front()["update"], 6);
  const std::string before = histograms("r");
  resume("r", {"train.max_updates=0", "log.histograms=0"});
  EXPECT_EQ(histograms("r"), before);
}

}  // namespace
}  // namespace bantam::run::run_logs_test
