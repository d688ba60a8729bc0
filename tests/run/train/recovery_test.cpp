// Runs that ended in an unlucky moment, or could not write a file: what they lack is made up for, and nothing is lost.
#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/train.h"
#include "bantam/run/train/training_run.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::recovery_test {
namespace {

namespace fs = std::filesystem;

struct Events : Callback, RunObserver {
  bool observes() const override { return true; }
  void on_epoch_end(const EpochEvent& event) override { evaluated += event.validation.samples > 0 ? 1 : 0; }
  void on_warning(std::string_view text) override {
    warnings.emplace_back(text);
    if (warned) warned();
  }
  void on_message(std::string_view text) override { messages.emplace_back(text); }
  static bool has(const std::vector<std::string>& texts, const std::string& part) {
    return std::ranges::any_of(texts, [&](const std::string& text) { return text.find(part) != std::string::npos; });
  }
  bool told(const std::string& part) const { return has(warnings, part); }
  bool messages_told(const std::string& part) const { return has(messages, part); }

  int evaluated = 0;
  std::vector<std::string> warnings, messages;
  std::function<void()> warned;
};

/// Has a folder where the run wants a file.
struct Blocks : Callback {
  explicit Blocks(fs::path path) : path(std::move(path)) {}
  bool observes() const override { return true; }
  void on_begin() override { fs::create_directory(path); }
  fs::path path;
};

class RecoveryTest : public RunTest {
 protected:
  Outcome begin(const std::string& name, const std::vector<std::string>& overrides, bool overwrite = false) {
    Callback* const callbacks[] = {&events_};
    return train(tiny(overrides), {.threads = 1, .folder = path(name), .overwrite = overwrite}, callbacks,
                 {.observer = &events_});
  }
  Outcome resume(const std::string& name, const std::vector<std::string>& overrides = {}) {
    RunDirectory folder = RunDirectory::open(path(name));
    Callback* const callbacks[] = {&events_};
    return train(read_run_config(folder.config(), overrides), {.threads = 1}, callbacks,
                 {.observer = &events_, .resume = &folder});
  }
  /// From a run's folder or one of its checkpoints, whatever has changed.
  Outcome change(const std::string& name, const std::vector<std::string>& overrides,
                 std::span<Callback* const> callbacks = {}) {
    RunDirectory folder = RunDirectory::open(path(name));
    return train(read_run_config(folder.config(), overrides), {.threads = 1, .accept_changes = true}, callbacks,
                 {.observer = &events_, .resume = &folder});
  }
  /// As a process leaves it that is killed before its last word.
  void make_running(const std::string& name) const {
    std::optional<RunRecord> record = read_record(path(name) / "run.json");
    ASSERT_TRUE(record);
    record->state = RunState::running;
    write_record(path(name) / "run.json", *record);
  }
  RunState state_of(const std::string& name) const { return read_record(path(name) / "run.json").value().state; }

  Events events_;
};

TEST_F(RecoveryTest, OfAReplacedRunNothingIsLeft) {
  begin("r", {"seed=8", "train.epochs=4"});
  fs::remove(path("r/config.yaml"));  // killed while it was replaced
  fs::remove(path("r/run.json"));
  begin("r", {}, true);
  const std::vector<Checkpoint> found = CheckpointFolder(path("r")).list();
  ASSERT_EQ(found.size(), 1u) << "older checkpoints of more updates would be taken for the newest";
  EXPECT_EQ(found[0].updates, 12);
}

TEST_F(RecoveryTest, ARunAtItsLastUpdateGetsItsWeightsAndItsLastLine) {
  const std::vector<std::string> overrides = {"train.max_updates=5", "train.log_every=3"};
  begin("r", overrides);
  const std::string weights = read_file(path("r/weights.safetensors")), metrics = read_file(path("r/metrics.jsonl"));
  EXPECT_TRUE(resume("r").finished_before);
  EXPECT_EQ(read_file(path("r/metrics.jsonl")), metrics) << "asking changes nothing";

  make_running("r");
  write_file_atomically(path("r/weights.safetensors"), "of an earlier session");
  fs::resize_file(path("r/metrics.jsonl"), metrics.find('\n') + 1);
  EXPECT_TRUE(resume("r").finished_before);
  EXPECT_EQ(read_file(path("r/weights.safetensors")), weights);
  EXPECT_EQ(lines_without_clock(read_file(path("r/metrics.jsonl"))), lines_without_clock(metrics));
  EXPECT_EQ(state_of("r"), RunState::finished);
}

TEST_F(RecoveryTest, AllUpdatesOfARunAreNotItsEndBeforeTheEvaluation) {
  const std::vector<std::string> overrides = {"train.max_updates=6", "train.epochs=3"};
  begin("whole", overrides);
  EXPECT_EQ(events_.evaluated, 1);
  int asked = 0;
  train(tiny(overrides), {.threads = 1, .folder = path("counted"), .stop = [&asked] { return ++asked < 0; }});
  // The evaluation's two batches are the last to ask.
  const auto stop = [left = asked - 1]() mutable { return left-- <= 0; };
  const Outcome stopped = train(tiny(overrides), {.threads = 1, .folder = path("r"), .stop = stop});
  ASSERT_TRUE(stopped.result.stopped);
  ASSERT_EQ(stopped.result.updates, 6);
  events_.evaluated = 0;
  EXPECT_FALSE(resume("r").finished_before);
  EXPECT_EQ(events_.evaluated, 1);
}

TEST_F(RecoveryTest, WeightsThatCannotBeWrittenDoNotStandInTheWayOfTheState) {
  Blocks blocks(path("r/weights.safetensors"));
  Callback* const callbacks[] = {&blocks};
  EXPECT_THROW(train(tiny(), {.threads = 1, .folder = path("r")}, callbacks), DataError);
  EXPECT_EQ(state_of("r"), RunState::failed);
  ASSERT_EQ(CheckpointFolder(path("r")).list().size(), 1u);
  fs::remove(path("r/weights.safetensors"));
  EXPECT_TRUE(resume("r").finished_before);
  begin("whole", {});
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
}

TEST_F(RecoveryTest, BestWeightsAreTriedASecondTime) {
  const std::vector<std::string> overrides = {"checkpoint={min_interval: 0s, best: {metric: loss, mode: min}}"};
  begin("whole", overrides);
  events_.warned = [this] {
    if (fs::is_directory(path("r/weights-best.safetensors"))) fs::remove(path("r/weights-best.safetensors"));
  };
  Blocks blocks(path("r/weights-best.safetensors"));
  Callback* const callbacks[] = {&blocks};
  train(tiny(overrides), {.threads = 1, .folder = path("r")}, callbacks, {.observer = &events_});
  EXPECT_TRUE(events_.told("training goes on"));
  EXPECT_EQ(read_file(path("r/weights-best.safetensors")), read_file(path("whole/weights-best.safetensors")));
}

TEST_F(RecoveryTest, AResumedRunThatFailsAtOnceCanBeResumed) {
  begin("r", {"train.max_updates=3"});
  fs::remove_all(path("r/checkpoints"));
  struct Throws : Callback {
    bool observes() const override { return true; }
    void on_begin() override { throw DataError("at once"); }
  } throws;
  Callback* const callbacks[] = {&throws};
  {
    RunDirectory folder = RunDirectory::open(path("r"));
    EXPECT_THROW(train(read_run_config(folder.config(), {}), {.threads = 1}, callbacks, {.resume = &folder}),
                 DataError);
  }
  EXPECT_EQ(resume("r").result.updates, 3);
}

TEST_F(RecoveryTest, MoreEpochsAreWarnedOfWhereAScheduleFollowsThem) {
  const std::string rate = "train.optimizer={sgd: {learning_rate: {schedule: cosine, peak: 0.05";
  begin("over", {rate + ", over: 2epochs}}}"});
  resume("over", {"train.epochs=3"});
  EXPECT_FALSE(events_.told("keeps the 2")) << "its length is written down";
  begin("run", {rate + "}}}"});
  resume("run", {"train.epochs=3"});
  EXPECT_TRUE(events_.told("a schedule without 'over' keeps the 2 that it was made with"));
}

TEST_F(RecoveryTest, LinesThatAreMissingAtTheEndAreAnError) {
  Blocks blocks(path("r/metrics.jsonl"));
  Callback* const callbacks[] = {&blocks};
  EXPECT_THROW(train(tiny(), {.threads = 1, .folder = path("r")}, callbacks), DataError);
  EXPECT_TRUE(fs::exists(path("r/weights.safetensors"))) << "all else is saved";
  EXPECT_EQ(state_of("r"), RunState::finished);
}

TEST_F(RecoveryTest, AnEarlierCheckpointsRunHasItsLinesAlone) {
  const std::vector<std::string> overrides = {"checkpoint={every: 2updates, min_interval: 0s, keep_last: 10}"};
  begin("r", overrides);
  const std::string whole = read_file(path("r/weights.safetensors"));
  const std::vector<Checkpoint> found = CheckpointFolder(path("r")).list();
  const Checkpoint& earliest = found.back();
  ASSERT_LT(earliest.updates, 12);
  {
    RunDirectory folder = RunDirectory::open(earliest.path);
    train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
  }
  EXPECT_EQ(read_file(path("r/weights.safetensors")), whole);
  const std::string text = read_file(path("r/metrics.jsonl"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 14) << "12 updates and 2 epochs, each once";
}

/// Accepted changes give epochs another number of updates, which checkpoints are numbered by.
TEST_F(RecoveryTest, TheLoadedCheckpointStaysWhereEpochsHaveOtherUpdates) {
  struct Stops : Callback {
    bool observes() const override { return true; }
    void on_begin() override { throw DataError("killed, as it were"); }
  } stops;
  Callback* const callbacks[] = {&stops};
  const std::vector<std::string> often = {"checkpoint={every: 1epoch, min_interval: 0s, keep_last: 10}"};
  const auto killed = [&](const std::string& batch) {
    EXPECT_THROW(change("r", {"data.pipeline.batch.size=" + batch, "train.epochs=9"}, callbacks), DataError);
  };
  const auto left = [&] {
    std::vector<std::int64_t> updates;
    for (const Checkpoint& checkpoint : CheckpointFolder(path("r")).list()) updates.push_back(checkpoint.updates);
    return updates;
  };
  begin("r", often);
  ASSERT_EQ(left(), (std::vector<std::int64_t>{12, 6}));
  const std::string state = read_file(path("r/checkpoints/update-00000012/state.safetensors"));

  killed("64");  // 2 updates an epoch, where there were 6
  EXPECT_EQ(left(), (std::vector<std::int64_t>{4})) << "of epoch 1, update 6 would be the newest";
  const Checkpoint fewer = CheckpointFolder(path("r")).list().at(0);
  EXPECT_EQ(fewer.read().updates, 4);
  EXPECT_EQ(fewer.read().epoch, 2);
  EXPECT_EQ(read_file(fewer.state()), state);

  killed("8");  // 12
  EXPECT_EQ(left(), (std::vector<std::int64_t>{24}));
  EXPECT_EQ(read_file(CheckpointFolder(path("r")).list().at(0).state()), state);

  const std::vector<std::string> fewest = {"data.pipeline.batch.size=48", "train.epochs=4"};
  EXPECT_EQ(change("r", fewest).result.updates, 4);
  EXPECT_EQ(left(), (std::vector<std::int64_t>{8, 6, 4})) << "2 an epoch: 4 and 6 are newer than the one of epoch 2";
}

/// The newer ones are forgotten by their numbers, before it gets another one.
TEST_F(RecoveryTest, OfAnEarlierCheckpointWithAnotherNumberLaterOnesAreForgotten) {
  begin("r", {"checkpoint={every: 1epoch, min_interval: 0s, keep_last: 10}"});
  const std::vector<std::string> more = {"data.pipeline.batch.size=4", "train.max_updates=25"};
  EXPECT_EQ(change("r/checkpoints/update-00000006", more).result.updates, 1);
  const std::vector<Checkpoint> found = CheckpointFolder(path("r")).list();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].updates, 25);
  EXPECT_EQ(found[1].updates, 24) << "24 updates an epoch; 12, of the second epoch, is gone";
  EXPECT_EQ(found[1].read().epoch, 1);
}

/// Else weights of an earlier session would count as those of the run's end.
TEST_F(RecoveryTest, AResumeThatIsStoppedAtItsStartChangesNothing) {
  begin("r", {"train.max_updates=3"});
  make_running("r");  // killed in a later session
  const std::string record = read_file(path("r/run.json"));
  const auto stopped = [&] {
    RunDirectory folder = RunDirectory::open(path("r"));
    (void)train(read_run_config(folder.config(), {}), {.threads = 1}, {},
                {.resume = &folder, .stop_start = [] { return true; }});
  };
  EXPECT_THROW(stopped(), StoppedBeforeTraining);
  EXPECT_EQ(read_file(path("r/run.json")), record);
}

/// Killed, as it were, when later checkpoints are removed: weights.safetensors is that of an end that they were of.
TEST_F(RecoveryTest, ARunThatForgetsItsEndHasNotEnded) {
  begin("r", {"checkpoint={every: 1epoch, min_interval: 0s, keep_last: 10}"});
  ASSERT_EQ(state_of("r"), RunState::finished);
  {
    RunDirectory folder = RunDirectory::open(path("r/checkpoints/update-00000006"));
    const RunConfig config = read_run_config(folder.config(), {});
    fs::remove(path("r/config.yaml"));
    fs::create_directories(path("r/config.yaml/in the way"));
    EXPECT_THROW((void)train(config, {.threads = 1}, {}, {.resume = &folder}), DataError);
  }
  ASSERT_EQ(CheckpointFolder(path("r")).list().size(), 1u) << "the later one is removed";
  EXPECT_NE(state_of("r"), RunState::finished);
}

/// Another run's state, of the same shapes, seed and update, and with a checksum of its own that is sound.
TEST_F(RecoveryTest, AForeignStateIsRefusedByName) {
  const std::string kept = "checkpoint={every: off, keep_last: 10}";
  begin("whole", {kept});
  for (const auto& [run, rate] : {std::pair("r", "0.05"), std::pair("other", "0.04")}) {
    begin(run, {kept, "train.max_updates=6", std::string("train.optimizer.sgd.learning_rate=") + rate});
    resume(run, {"train.max_updates=9"});
  }
  const auto copy = [&] {
    fs::remove_all(path("s"));
    fs::copy(path("r"), path("s"), fs::copy_options::recursive);
    events_.warnings.clear();
  };
  const fs::path newest = "checkpoints/update-00000009";
  for (const char* file : {"state.safetensors", "weights.safetensors"})
    for (const fs::path& from : {path("other") / newest, path("r/checkpoints/update-00000006")}) {
      copy();
      fs::copy_file(from / file, path("s") / newest / file, fs::copy_options::overwrite_existing);
      EXPECT_EQ(resume("s", {"train.max_updates=0"}).result.updates, 6) << "from the checkpoint before it";
      EXPECT_TRUE(events_.told((newest / file).string() + ": damaged"));
      EXPECT_EQ(read_file(path("s/weights.safetensors")), read_file(path("whole/weights.safetensors")));
      EXPECT_EQ(lines_without_clock(read_file(path("s/metrics.jsonl"))),
                lines_without_clock(read_file(path("whole/metrics.jsonl"))));
    }
  copy();  // a whole checkpoint names its run
  fs::remove_all(path("s") / newest);
  fs::copy(path("other") / newest, path("s") / newest, fs::copy_options::recursive);
  try {
    resume("s", {"train.max_updates=0"});
    ADD_FAILURE() << "it passed";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("checkpoint.json is of another run"), std::string::npos) << error.what();
  }
  EXPECT_EQ(CheckpointFolder(path("s")).list().size(), 2u) << "none is removed";
}

TEST_F(RecoveryTest, LogsThatTheRunHasNotWrittenAreRefused) {
  const std::vector<std::string> half = {"checkpoint={every: 3updates, min_interval: 0s, keep_last: 1}",
                                         "train.max_updates=9", "log={histograms: 3}"};
  begin("r", half);
  begin("again", half);  // the same bits at other times
  const std::string metrics = read_file(path("r/metrics.jsonl")), histograms = read_file(path("r/histograms.jsonl"));
  const auto refuses = [&](const std::string& file, const std::string& text, const std::string& what) {
    write_file_atomically(path("r") / file, text);
    try {
      resume("r", {"train.max_updates=0"});
      ADD_FAILURE() << file << " passed: " << what;
    } catch (const DataError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find((path("r") / file).string()), std::string::npos) << message;
      EXPECT_NE(message.find(what), std::string::npos) << message;
      EXPECT_NE(message.find("--accept-changes"), std::string::npos) << message;
    }
    EXPECT_EQ(read_file(path("r") / file), text) << "nothing is lost";
    write_file_atomically(path("r/metrics.jsonl"), metrics);
    write_file_atomically(path("r/histograms.jsonl"), histograms);
  };
  std::string flipped = metrics;
  flipped[20] = static_cast<char>(flipped[20] ^ 1);
  refuses("metrics.jsonl", flipped, "differs from what the run has written");
  refuses("metrics.jsonl", metrics.substr(0, 100), "has 100 bytes, expected at least the");
  refuses("metrics.jsonl", "", "has 0 bytes");
  refuses("metrics.jsonl", read_file(path("again/metrics.jsonl")), "metrics.jsonl");
  refuses("histograms.jsonl", histograms.substr(0, histograms.size() / 2), "expected at least the");
  fs::remove(path("r/metrics.jsonl"));
  EXPECT_THROW(resume("r", {"train.max_updates=0"}), DataError);

  write_file_atomically(path("r/metrics.jsonl"), flipped);
  EXPECT_EQ(change("r", {"train.max_updates=0"}).result.updates, 3);
  EXPECT_EQ(read_file(path("r/metrics.jsonl.kept")), flipped);
  EXPECT_EQ(std::ranges::count(read_file(path("r/metrics.jsonl")), '\n'), 14) << "12 updates and 2 epochs, each once";
}

TEST_F(RecoveryTest, NewerLogsUnderAnOlderCheckpointAreCut) {
  const std::vector<std::string> often = {"checkpoint={every: 3updates, min_interval: 0s, keep_last: 10}"};
  begin("whole", often);
  begin("r", often);
  for (const char* newer : {"update-00000012", "update-00000009"}) fs::remove_all(path("r/checkpoints") / newer);
  resume("r");
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
  EXPECT_EQ(lines_without_clock(read_file(path("r/metrics.jsonl"))),
            lines_without_clock(read_file(path("whole/metrics.jsonl"))));
}

TEST_F(RecoveryTest, WeightsOfAnEndThatAreDamagedAreWrittenAgain) {
  begin("r", {});
  const std::string weights = read_file(path("r/weights.safetensors"));
  std::string flipped = weights;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  write_file_atomically(path("r/weights.safetensors"), flipped);
  EXPECT_TRUE(resume("r").finished_before);
  EXPECT_EQ(read_file(path("r/weights.safetensors")), weights);
}

TEST_F(RecoveryTest, ACheckpointOfAnEarlierVersionGoesOn) {
  begin("whole", {});
  begin("r", {"train.max_updates=9"});
  const Checkpoint checkpoint = CheckpointFolder(path("r")).list().at(0);
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_file(checkpoint.facts()));
  json["version"] = 1;
  for (const char* key :
       {"run", "sha256", "metrics_sha256", "histograms_sha256", "events_sha256", "validation_events_sha256"})
    ASSERT_EQ(json.erase(key), 1u) << key;
  for (auto& [file, sum] : json["files"].items()) sum.erase("sha256");
  json["best"].erase("sha256");
  write_file_atomically(checkpoint.facts(), json.dump(1));
  nlohmann::ordered_json record = nlohmann::ordered_json::parse(read_file(path("r/run.json")));
  ASSERT_EQ(record.erase("id"), 1u);
  write_file_atomically(path("r/run.json"), record.dump(1));
  resume("r", {"train.max_updates=0"});
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
  EXPECT_TRUE(events_.messages_told("of an earlier version"));
  EXPECT_EQ(CheckpointFolder(path("r")).list().at(0).read().metrics.sha256.size(), 64u) << "from now on";
}

/// Evaluations after a checkpoint that a run goes back to are thrown away, and their weights with them. In one of the
/// two modes the first evaluation is not the best.
class BestWeightsTest : public RecoveryTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr const char* kFile = "weights-best.safetensors";
  std::vector<std::string> with(const std::vector<std::string>& more, bool best = true) const {
    const std::string kept = best ? std::string(", best: {metric: loss, mode: ") + GetParam() + "}" : "";
    std::vector<std::string> all = {"checkpoint={every: 1epoch, min_interval: 0s, keep_last: 10" + kept + "}",
                                    "train.epochs=3", "train.max_updates=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::int64_t best_epoch(const std::string& name) const {
    const RunRecord record = read_record(path(name) / "run.json").value();
    return record.metric.empty() ? 0 : record.best_epoch;
  }
};

TEST_P(BestWeightsTest, OfABestCheckpointTheyAreWrittenAnew) {
  begin("first", with({"train.epochs=1"}));
  begin("r", with({}));
  const bool later = best_epoch("r") > 1;
  const std::string before = read_file(path("r") / kFile);
  EXPECT_EQ(change("r/checkpoints/update-00000006", {"train.max_updates=7"}).best_epoch, 1);
  EXPECT_EQ(best_epoch("r"), 1) << "the evaluations after it did not take place";
  EXPECT_EQ(read_file(path("r") / kFile), read_file(path("first") / kFile));
  EXPECT_EQ(read_file(path("r") / kFile) != before, later);
  change("r", with({}));
  EXPECT_EQ(read_file(path("r") / kFile), before) << "and take place again";
}

TEST_P(BestWeightsTest, OfAnotherCheckpointTheyAreRemoved) {
  begin("r", with({"train.max_updates=8"}));
  const std::string first = read_file(path("r") / kFile);
  change("r", with({}));
  const std::string whole = read_file(path("r") / kFile);
  const bool later = best_epoch("r") > 1;
  change("r/checkpoints/update-00000008", {"train.max_updates=9"});
  EXPECT_EQ(fs::exists(path("r") / kFile), !later);
  EXPECT_EQ(best_epoch("r"), later ? 0 : 1);
  EXPECT_EQ(events_.told("is not of the best evaluation before the checkpoint"), later);
  change("r", with({}));
  EXPECT_EQ(read_file(path("r") / kFile), whole);
  EXPECT_EQ(first == whole, !later);
}

TEST_P(BestWeightsTest, OfASessionWithoutThemThereAreNone) {
  begin("r", with({"train.epochs=1"}));
  resume("r", with({"train.max_updates=15"}, false));
  ASSERT_TRUE(fs::exists(path("r") / kFile)) << "those of the session before";
  resume("r", with({"train.max_updates=16"}));
  EXPECT_FALSE(fs::exists(path("r") / kFile)) << "the second epoch may have been better";
  EXPECT_EQ(best_epoch("r"), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, BestWeightsTest, ::testing::Values("min", "max"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(RecoveryTest, ARunIsNotRestoredToABestThatIsNotItsOwn) {
  const std::vector<std::string> restores = {"train.stop_early={patience: 9, restore_best: true}"};
  begin("r", restores);
  begin("other", {restores[0], "seed=8"});
  fs::copy_file(path("other/weights-best.safetensors"), path("r/weights-best.safetensors"),
                fs::copy_options::overwrite_existing);
  fs::remove(path("r/weights.safetensors"));
  make_running("r");
  EXPECT_TRUE(resume("r").finished_before);
  EXPECT_NE(tensors_of(path("r/weights.safetensors")), tensors_of(path("other/weights-best.safetensors")));
  EXPECT_EQ(state_of("r"), RunState::finished);
}

/// Sums of the epoch's metrics so far are of those metrics, as those of a line of several updates are.
TEST_F(RecoveryTest, OtherMetricsInMidEpochAreRefusedBeforeAnythingIsWritten) {
  const auto files = [&](const std::string& name) {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path(name)))
      if (entry.is_regular_file()) found[fs::relative(entry.path(), path(name))] = read_file(entry.path());
    return found;
  };
  const std::vector<std::string> keys = {"train.metrics=[accuracy, {f1: {training: true}}]", "train.epochs=3",
                                         "checkpoint={every: 1epoch, min_interval: 0s, keep_last: 5}"};
  const std::vector<std::string> others = {"train.metrics=[accuracy]", "train.max_updates=0"};
  for (const char* every : {"1", "4"}) {  // the second one's line is not full, either
    const std::string name = std::string("r") + every;
    std::vector<std::string> all = keys;
    all.insert(all.end(), {"train.max_updates=9", std::string("train.log_every=") + every});
    begin(name, all);
    const auto before = files(name);
    ASSERT_EQ(before.count("checkpoints/update-00000009/state.safetensors"), 1u);
    EXPECT_THROW(change(name, others), ConfigError);
    EXPECT_EQ(files(name), before);
    EXPECT_EQ(resume(name, {"train.max_updates=10"}).result.updates, 1) << "with its own metrics it goes on";
  }
  EXPECT_EQ(change("r1/checkpoints/update-00000006", others).result.updates, 12)
      << "at an epoch's end there are no sums";
}

}  // namespace
}  // namespace bantam::run::recovery_test
