// run::train as a program calls it: events, files, stopping, going on to the same bits, and errors.
#include "bantam/run/train/train.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/data/formats/generated.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/evaluate/evaluation.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/training_run.h"
#include "bantam/run/trained/task.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::train_test {
namespace {

using TrainTest = RunTest;

struct Events : Callback, RunObserver {
  using Callback::on_begin;
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override { updates = event.update, losses.push_back(event.epoch_loss); }
  void on_epoch_end(const EpochEvent& event) override {
    epochs.push_back(event.validation.samples);
    validation_losses.push_back(event.validation.loss);
  }
  void on_decided(const RunConfig&, const DecisionLog&) override { order += "decided "; }
  void on_read(std::string_view set, std::int64_t done, std::int64_t samples) override {
    if (done == samples) read += fmt::format("{} {}; ", set, samples);
  }
  void on_ready() override { order += "ready "; }
  void on_begin(const RunStart& run) override {
    order += "begin ";
    in_use = run.runtime.allocator(run.config.device).stats().in_use_bytes;
  }
  void on_trained() override { order += "trained "; }
  void on_saved() override { order += "saved"; }
  void on_warning(std::string_view text) override { warnings.emplace_back(text); }

  std::int64_t updates = 0;
  std::vector<double> losses;
  std::vector<std::int64_t> epochs;
  std::vector<double> validation_losses;
  std::string order, read;
  std::uint64_t in_use = 0;
  std::vector<std::string> warnings;
};

TEST_F(TrainTest, TellsOfSamplesReadOrPackedAndMayBeStoppedThere) {
  for (const std::string cache : {"ram", "disk"}) {
    SCOPED_TRACE(cache);
    const RunConfig config = tiny({"data.pipeline=[{cache: " + cache + "}, {batch: {size: 16}}]"});
    int asked = 0;
    Events events, stopped;
    const auto stop = [&] { return stopped.read.starts_with("train") && ++asked > 0; };
    EXPECT_THROW(
        (void)train(config, {.threads = 1, .folder = path("s")}, {}, {.observer = &stopped, .stop_start = stop}),
        StoppedBeforeTraining);
    EXPECT_EQ(stopped.read, "train 96; ") << "the validation samples were not read to their end";
    (void)train(config, {.threads = 1, .folder = path(cache)}, {}, {.observer = &events});
    EXPECT_EQ(events.read, "train 96; validation 20; ");
  }
}

TEST_F(TrainTest, TellsCallbacksAndSaves) {
  Events events;
  Callback* const callbacks[] = {&events};
  const Outcome outcome = train(tiny(), {.threads = 1, .folder = path("r")}, callbacks, {.observer = &events});
  EXPECT_EQ(events.order, "decided ready begin trained saved");
  EXPECT_EQ(events.updates, 6);
  EXPECT_EQ(events.epochs, (std::vector<std::int64_t>{20, 20}));
  EXPECT_GT(events.in_use, 0u);
  EXPECT_TRUE(events.warnings.empty());
  EXPECT_EQ(outcome.result.updates, 12);
  EXPECT_EQ(outcome.effective_batch, 16);
  EXPECT_EQ(outcome.folder, path("r"));
  EXPECT_EQ(outcome.memory.peak_bytes, outcome.planned_peak_bytes);
  for (const char* file : {"run.json", "config.yaml", "metrics.jsonl", "weights.safetensors", "checkpoints"})
    EXPECT_TRUE(std::filesystem::exists(outcome.folder / file)) << file;
  EXPECT_TRUE(
      read_safetensors(path("r/weights.safetensors")).metadata.at("class_names").starts_with("[\"disc\",\"ring\""));
  EXPECT_FALSE(std::filesystem::exists(outcome.folder / ".lock"));
}

/// Its 35 updates are too few for Keras' momentum of 0.99, which would leave 70 % of the initial statistics. Of the
/// images that it was trained on, so that nothing else is to blame.
TEST_F(TrainTest, AShortRunOfOwnLayersIsEvaluatedWithItsOwnStatistics) {
  const auto trained = [&](const std::string& norm) {
    Events events;
    const Outcome outcome = train(tiny({"data.train_samples=200", "data.pipeline.batch={size: 32}", "train.epochs=5",
                                        "model.layers=[{conv2d: {filters: 16, kernel: 3, bias: false}}, " + norm +
                                            ", relu, max_pool, {conv2d: {filters: 32, kernel: 3, bias: false}}, " +
                                            norm + ", relu, max_pool, flatten, {dense: {units: 10}}]",
                                        "train.optimizer={adam: {learning_rate: 1.0e-3}}"}),
                                  {.threads = 2, .folder = path("r"), .overwrite = true}, {}, {.observer = &events});
    const Evaluation again = evaluate(open_trained_model(path("r")), {.set = EvaluatedSet::training, .threads = 2});
    return std::tuple(outcome.result.train.accuracy, again.metrics.accuracy, events.warnings);
  };
  const auto [in_training, evaluated, warnings] = trained("batch_norm");
  EXPECT_GT(in_training, 0.5);
  EXPECT_GT(evaluated, 0.9 * in_training) << "by running statistics";
  EXPECT_NE(read_file(path("r/config.yaml")).find("momentum: auto"), std::string::npos);
  const auto [before, slow, none] = trained("{batch_norm: {momentum: 0.99}}");
  EXPECT_EQ(before, in_training) << "running statistics are read by evaluations alone";
  EXPECT_LT(slow, 0.5 * in_training) << "which is what the warning is about";
}

TEST_F(TrainTest, ARunWithAWarmUpIsGoneOnFromToTheSameBits) {
  const std::vector<std::string> short_last = {"data.train_samples=97"};  // six full batches and one sample
  (void)train(tiny(short_last), {.threads = 1, .folder = path("whole")});
  int asked = 0;
  (void)train(tiny(short_last), {.threads = 1, .folder = path("r"), .stop = [&asked] { return ++asked > 5; }});
  RunDirectory folder = RunDirectory::open(path("r"));
  (void)train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
}

TEST_F(TrainTest, AccuracyIsTop1WhereASampleHasOneClassWhateverTheLoss) {
  const std::string pipeline = "data.pipeline=[shuffle, {normalize: {scale: 0.0039}}, one_hot, {batch: {size: 16}}]";
  for (const std::string loss : {"binary_cross_entropy", "{focal: {targets: values}}", "mse"}) {
    SCOPED_TRACE(loss);
    const Outcome outcome =
        train(tiny({pipeline, "train.loss=" + loss, "train.metrics=[{top_k: {k: 1}}]", "train.epochs=1"}),
              {.threads = 1, .folder = path("r"), .overwrite = true});
    for (const Metrics* metrics : {&outcome.result.train, &outcome.result.validation}) {
      ASSERT_EQ(metrics->values.size(), 1u);
      EXPECT_DOUBLE_EQ(metrics->accuracy, metrics->values[0].value());
    }
    EXPECT_EQ(accuracy_name(*outcome.config), "accuracy");
    // Who has no data reads it in the run's configuration.
    const RunConfig without_data = read_run_config(path("r/config.yaml"), {}, DataSection::skip);
    EXPECT_EQ(task_of(without_data), Task::classes);
  }
  const RunConfig multi = tiny({"data.labels=soft", "train.loss=binary_cross_entropy"});
  EXPECT_EQ(accuracy_name(multi), "binary_accuracy");
  EXPECT_EQ(task_of(multi), Task::multi_label);
  const RunConfig said = tiny({"data.labels=soft", "train.loss=binary_cross_entropy", "train.one_class=true"});
  EXPECT_EQ(accuracy_name(said), "accuracy");
  EXPECT_EQ(task_of(said), Task::classes);
  EXPECT_EQ(accuracy_name(tiny({"data.labels=soft", "train.loss=mse"})), "");
}

TEST_F(TrainTest, AStopIsGoneOnFromToTheSameBits) {
  const Outcome whole = train(tiny(), {.threads = 1, .folder = path("whole")});
  int asked = 0;
  const Outcome stopped = train(tiny(), {.threads = 1, .folder = path("r"), .stop = [&asked] { return ++asked > 4; }});
  ASSERT_TRUE(stopped.result.stopped);
  EXPECT_LT(stopped.result.updates, 12);
  RunDirectory folder = RunDirectory::open(path("r"));
  const Outcome rest = train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
  EXPECT_FALSE(rest.result.stopped);
  EXPECT_EQ(stopped.result.updates + rest.result.updates, 12);
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
  EXPECT_EQ(read_file(path("r/config.yaml")), read_file(path("whole/config.yaml")));
}

TEST_F(TrainTest, OpenValuesAreDecidedInTheOutcome) {
  const RunConfig open =
      tiny({"data.pipeline.batch={size: auto, max: 32}", "memory.limits={cpu: 64MiB}", "train.epochs=1"});
  const Outcome outcome = train(open, {.threads = 1, .folder = path("r")});
  EXPECT_EQ(outcome.config->data->pipeline.batch_size, 32);
  EXPECT_TRUE(open.data->pipeline.batch_size_is_auto) << "the caller's stays as it is";
  const RunConfig written = read_run_config(path("r/config.yaml"), {});
  EXPECT_EQ(written.data->pipeline.batch_size, 32);
  EXPECT_FALSE(written.data->pipeline.batch_size_is_auto);
}

/// Generated samples whose reader says that it keeps a MiB of host memory.
class Keeping : public WrappedReader {
 public:
  using WrappedReader::WrappedReader;
  std::uint64_t resident_bytes() const override { return 1u << 20; }
};

TEST_F(TrainTest, ALimitOfTheCpuIsOfPoolAndReaders) {
  sample_formats().add("keeping", [](ConfigMap&) {
    const SampleSplits splits = generated_readers({.train_samples = 96, .test_samples = 20});
    return SampleSplits{std::make_shared<Keeping>(splits.train), std::make_shared<Keeping>(splits.validation)};
  });
  const auto limited = [](std::uint64_t bytes) {
    return tiny({"data={format: keeping, pipeline: [batch: {size: 16}]}", "recompute=none",
                 fmt::format("memory.limits={{cpu: {}}}", bytes)});
  };
  const std::uint64_t needed = plan_run(limited(std::uint64_t{1} << 30)).pool_bytes + (2u << 20);
  EXPECT_THROW((void)train(limited(needed - 1), {.threads = 1, .folder = path("r")}), OutOfMemory);
  EXPECT_FALSE(std::filesystem::exists(path("r"))) << "it was refused at once";
  (void)train(limited(needed), {.threads = 1, .folder = path("r")});
  EXPECT_TRUE(std::filesystem::exists(path("r") / "weights.safetensors"));
}

TEST_F(TrainTest, RefusesBeforeItMakesAnything) {
  RunConfig without = tiny();
  without.data.reset();
  EXPECT_THROW((void)train(without, {.folder = path("r")}), ConfigError);
  EXPECT_THROW((void)train(tiny({"memory.budget=1KiB"}), {.folder = path("r")}), OutOfMemory);
  EXPECT_THROW((void)train(tiny({"memory.limits={cpu: 200KiB}"}), {.folder = path("r")}), OutOfMemory);
  EXPECT_FALSE(std::filesystem::exists(path("r")));
}

TEST_F(TrainTest, AFolderWithARunIsLeftAlone) {
  (void)train(tiny({"train.epochs=1"}), {.threads = 1, .folder = path("r")});
  const std::string before = read_file(path("r/metrics.jsonl"));
  EXPECT_THROW((void)train(tiny(), {.threads = 1, .folder = path("r")}), ConfigError);
  EXPECT_EQ(read_file(path("r/metrics.jsonl")), before);
  (void)train(tiny({"train.log_every=6updates"}), {.threads = 1, .folder = path("r"), .overwrite = true});
  const std::string after = read_file(path("r/metrics.jsonl"));
  EXPECT_EQ(std::count(after.begin(), after.end(), '\n'), 4) << "a line of updates and one of the epoch, twice";
}

TEST_F(TrainTest, WhatACallbackThrowsSavesTheRun) {
  struct Failing : Callback {
    void on_epoch_end(const EpochEvent&) override { throw DataError("no more"); }
  } failing;
  Events events;
  Callback* const callbacks[] = {&failing};
  EXPECT_THROW((void)train(tiny(), {.threads = 1, .folder = path("r")}, callbacks, {.observer = &events}), DataError);
  EXPECT_EQ(events.order, "decided ready begin trained saved");
  ASSERT_EQ(events.warnings.size(), 1u);
  EXPECT_NE(events.warnings[0].find("which are saved in"), std::string::npos);
  RunDirectory folder = RunDirectory::open(path("r"));
  EXPECT_FALSE(train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder}).result.stopped);
}

/// Ends a run in its middle, as no signal does.
struct ThrowsAt : Callback {
  ThrowsAt(std::int64_t at_epoch, std::int64_t at_update) : epoch(at_epoch), update(at_update) {}
  void on_progress(const ProgressEvent& event) override {
    if (event.epoch == epoch && event.update >= update) throw DataError("killed");
  }
  std::int64_t epoch, update;
};

class ResumeTest : public RunTest {
 protected:
  static std::vector<std::string> saving_often(std::vector<std::string> more = {}) {
    more.push_back("checkpoint={every: 1updates, min_interval: 0s, keep_last: 100}");
    return more;
  }
  /// Trains until the callback throws; a checkpoint an update is kept until there.
  void train_until(std::int64_t epoch, std::int64_t update, const RunConfig& config, const std::string& name) const {
    ThrowsAt kill(epoch, update);
    Callback* const callbacks[] = {&kill};
    EXPECT_THROW((void)train(config, {.threads = 1, .folder = path(name)}, callbacks), DataError);
  }
  Outcome resume(const std::string& name, const std::vector<std::string>& overrides = {}, Events* events = nullptr,
                 bool accept_changes = false) const {
    RunDirectory folder = RunDirectory::open(path(name));
    return train(read_run_config(folder.config(), overrides), {.threads = 1, .accept_changes = accept_changes}, {},
                 {.observer = events, .resume = &folder});
  }
  std::filesystem::path newest(const std::string& name) const { return CheckpointFolder(path(name)).list().at(0).path; }
  /// Without what is measured of a session: times, and the memory that was in use since it began.
  std::vector<nlohmann::json> log_of(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    const std::string text = read_file(path(name) / "metrics.jsonl");
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
      for (const char* measured : {"seconds", "evaluation_seconds", "images_per_s", "data_wait_share", "peak_bytes"})
        line.erase(measured);
      lines.push_back(line);
      begin = end + 1;
    }
    return lines;
  }
  void expect_same(const std::string& name, const std::string& whole) const {
    for (const char* file : {"state.safetensors", "weights.safetensors"})
      EXPECT_EQ(read_file(newest(name) / file), read_file(newest(whole) / file)) << file;
    EXPECT_EQ(read_file(path(name) / "weights.safetensors"), read_file(path(whole) / "weights.safetensors"));
    EXPECT_EQ(log_of(name), log_of(whole));
  }
};

TEST_F(ResumeTest, FromTheMiddleOfAnEpochAsIfNothingHappened) {
  for (const std::vector<std::string>& variation : std::vector<std::vector<std::string>>{
           {}, {"train.accumulate=2", "train.log_every=4updates"}, {"train.log_every=5updates"}}) {
    const RunConfig config = tiny(saving_often(variation));
    const std::int64_t updates = config.train.accumulate == 2 ? 3 : 6;
    std::filesystem::remove_all(path("whole"));
    (void)train(config, {.threads = 1, .folder = path("whole")});
    for (std::int64_t from = 1; from < 2 * updates; ++from) {
      std::filesystem::remove_all(path("r"));
      train_until(1, updates - 1, config, "r");
      const std::string number = std::to_string(from);
      const std::filesystem::path checkpoint =
          path("r/checkpoints") / ("update-" + std::string(8 - number.size(), '0') + number);
      if (!std::filesystem::exists(checkpoint)) continue;  // the one before was still being written
      RunDirectory folder = RunDirectory::open(checkpoint);
      (void)train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
      expect_same("r", "whole");
    }
    std::filesystem::remove_all(path("r"));
    train_until(1, 2, config, "r");
    (void)resume("r");
    expect_same("r", "whole");
  }
}

TEST_F(ResumeTest, AnEarlyStopFallsOnTheSameUpdateWhereverTheRunWasKilled) {
  // No evaluation is better than the first by 100: the run ends after its third epoch.
  const RunConfig config =
      tiny(saving_often({"train.epochs=9", "train.stop_early={patience: 2, min_delta: 100, restore_best: true}"}));
  const Outcome whole = train(config, {.threads = 1, .folder = path("whole")});
  EXPECT_TRUE(whole.result.stopped_early);
  EXPECT_EQ(whole.result.epochs, 3);
  const RunRecord record = load_record(path("whole/run.json"));
  EXPECT_EQ(record.state, RunState::finished);
  EXPECT_NE(record.reason.find("train.stop_early: validation loss has not improved for 2 evaluations"),
            std::string::npos)
      << record.reason;
  for (const auto& [epoch, update] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {1, 2}, {2, 5}}) {
    std::filesystem::remove_all(path("r"));
    train_until(epoch, update, config, "r");
    EXPECT_TRUE(resume("r").result.stopped_early);
    expect_same("r", "whole");
    EXPECT_EQ(load_record(path("r/run.json")).reason, record.reason);
  }
  const Outcome ended = resume("r");
  EXPECT_TRUE(ended.finished_before);
  EXPECT_TRUE(ended.result.stopped_early);
  EXPECT_EQ(ended.reason, record.reason);
  EXPECT_EQ(resume("r", {"train.stop_early.patience=4"}).result.epochs, 2) << "a larger patience goes on";
  EXPECT_EQ(resume("r", {"train.stop_early=off"}).result.epochs, 4);
}

TEST_F(ResumeTest, ARunMayEndWithTheWeightsOfItsBestEvaluation) {
  // Steps that grow the loss after some epochs: the best weights are not the last.
  const std::vector<std::string> keys = {"train.epochs=6", "train.optimizer.sgd.learning_rate=1.5",
                                         "train.stop_early={patience: 2, restore_best: true}"};
  Events events;
  Callback* const callbacks[] = {&events};
  const Outcome outcome = train(tiny(keys), {.threads = 1, .folder = path("r")}, callbacks);
  const auto& losses = events.validation_losses;
  ASSERT_NE(std::ranges::min_element(losses), losses.end() - 1) << "the last evaluation is not the best";
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("r/weights-best.safetensors")));
  EXPECT_NE(read_file(path("r/weights.safetensors")), read_file(newest("r") / "weights.safetensors"))
      << "a checkpoint has the state of the run's end";
  // Killed after its last checkpoint: the resume writes what came then.
  std::filesystem::remove(path("r/weights.safetensors"));
  (void)resume("r");
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("r/weights-best.safetensors")));
  EXPECT_EQ(outcome.result.validation.loss, losses.back());
}

TEST_F(ResumeTest, ADamagedCheckpointIsNamedAndTheOneBeforeIsUsed) {
  (void)train(tiny(), {.threads = 1, .folder = path("whole")});
  train_until(1, 4, tiny({"checkpoint.min_interval=0s"}), "r");
  ASSERT_EQ(CheckpointFolder(path("r")).list().size(), 2u);
  const std::filesystem::path damaged = newest("r");
  std::string text = read_file(damaged / "state.safetensors");
  text.back() ^= 1;
  write_file_atomically(damaged / "state.safetensors", text);
  Events events;
  const Outcome outcome = resume("r", {}, &events);
  EXPECT_EQ(outcome.result.updates, 6) << "from the end of the first epoch";
  ASSERT_FALSE(events.warnings.empty());
  EXPECT_NE(events.warnings[0].find(damaged.string()), std::string::npos) << events.warnings[0];
  EXPECT_NE(events.warnings[0].find("going on from the checkpoint before it"), std::string::npos);
  expect_same("r", "whole");
}

TEST_F(ResumeTest, WithoutASoundCheckpointItIsAnError) {
  train_until(1, 2, tiny(), "r");
  for (const Checkpoint& checkpoint : CheckpointFolder(path("r")).list())
    std::filesystem::resize_file(checkpoint.state(), 10);
  EXPECT_THROW((void)resume("r"), DataError);
}

TEST_F(ResumeTest, AnotherNetworkIsRefusedUnlessThatIsAccepted) {
  train_until(1, 2, tiny(), "r");
  const std::vector<std::string> change = {"model.layers.1.batch_norm.activation=tanh"};
  try {
    (void)resume("r", change);
    ADD_FAILURE() << "another activation";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.1.batch_norm.activation: was relu, is tanh"),
              std::string::npos)
        << error.what();
  }
  Events events;
  EXPECT_EQ(resume("r", change, &events, true).result.epoch, 2);
  ASSERT_EQ(events.warnings.size(), 1u);
  EXPECT_NE(events.warnings[0].find("activation: was relu, is tanh"), std::string::npos) << events.warnings[0];
}

TEST_F(ResumeTest, AFinishedRunSaysSoAndGoesOnToMoreEpochs) {
  (void)train(tiny(), {.threads = 1, .folder = path("r")});
  const std::string before = read_file(path("r/run.json"));
  const Outcome again = resume("r");
  EXPECT_TRUE(again.finished_before);
  EXPECT_EQ(again.result.updates, 0);
  EXPECT_EQ(read_file(path("r/run.json")), before);
  (void)train(tiny({"train.epochs=3"}), {.threads = 1, .folder = path("whole")});
  const Outcome more = resume("r", {"train.epochs=3"});
  EXPECT_FALSE(more.finished_before);
  EXPECT_EQ(more.result.updates, 6);
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
}

TEST_F(ResumeTest, WithoutACheckpointItStartsAtTheBeginning) {
  (void)train(tiny(), {.threads = 1, .folder = path("whole")});
  train_until(1, 2, tiny(), "r");
  std::filesystem::remove_all(path("r/checkpoints"));
  std::filesystem::remove(path("r/weights.safetensors"));
  Events events;
  EXPECT_EQ(resume("r", {}, &events).result.updates, 12);
  ASSERT_EQ(events.warnings.size(), 1u);
  EXPECT_NE(events.warnings[0].find("has no complete checkpoint yet: the run starts at update 0"), std::string::npos);
  expect_same("r", "whole");
}

TEST_F(ResumeTest, TheBestWeightsAreThoseOfTheBestEpoch) {
  for (const char* mode : {"min", "max"}) {
    Events events;
    Callback* const callbacks[] = {&events};
    const std::vector<std::string> overrides = {"train.epochs=3",
                                                std::string("checkpoint.best={metric: loss, mode: ") + mode + "}"};
    (void)train(tiny(overrides), {.threads = 1, .folder = path(mode)}, callbacks);
    const std::vector<double>& losses = events.validation_losses;
    ASSERT_EQ(losses.size(), 3u);
    const auto best = std::string(mode) == "min" ? std::ranges::min_element(losses) : std::ranges::max_element(losses);
    const std::int64_t epoch = best - losses.begin() + 1;
    const RunRecord record = load_record(path(mode) / "run.json");
    EXPECT_EQ(record.metric, "loss");
    EXPECT_EQ(record.best_epoch, epoch);
    EXPECT_EQ(record.best, *best);
    const std::string until = std::string(mode) + "-until";
    (void)train(tiny({"train.epochs=" + std::to_string(epoch)}), {.threads = 1, .folder = path(until)});
    EXPECT_EQ(tensors_of(path(mode) / "weights-best.safetensors"), tensors_of(path(until) / "weights.safetensors"));
  }
  (void)train(tiny({"train.epochs=1"}), {.threads = 1, .folder = path("without")});
  EXPECT_FALSE(std::filesystem::exists(path("without/weights-best.safetensors")));
}

TEST_F(ResumeTest, MaxUpdatesIsExactOnEveryDevice) {
  for (const char* device : {"cpu", "cuda:0"}) {
    if (device != std::string("cpu") && cuda_device_count() == 0) continue;
    const std::string of = std::string("device=") + device, name = std::string(device).substr(0, 3);
    (void)train(tiny({of}), {.threads = 1, .folder = path(name + "whole")});
    const Outcome first = train(tiny({of, "train.max_updates=8"}), {.threads = 1, .folder = path(name)});
    EXPECT_EQ(first.result.updates, 8);
    EXPECT_TRUE(first.result.reached_max_updates);
    EXPECT_FALSE(first.result.stopped);
    const RunRecord record = load_record(path(name) / "run.json");
    EXPECT_EQ(record.state, RunState::finished);
    EXPECT_EQ(record.reason, "train.max_updates");
    EXPECT_EQ(record.updates, 8);
    EXPECT_TRUE(resume(name).finished_before);
    EXPECT_EQ(resume(name, {"train.max_updates=0"}).result.updates, 4);
    expect_same(name, name + "whole");
  }
}

// The tiny run has two epochs of six updates.
TEST_F(ResumeTest, UpdatesAreTheLengthOfARun) {
  const Outcome first = train(tiny({"train.updates=8"}), {.threads = 1, .folder = path("r")});
  EXPECT_EQ(first.config->train.epochs, 2);
  EXPECT_EQ(first.result.updates, 8);
  EXPECT_EQ(first.result.epoch, 1);
  EXPECT_EQ(first.result.update, 2);
  EXPECT_FALSE(first.result.stopped);
  EXPECT_FALSE(first.result.reached_max_updates);
  EXPECT_GT(first.result.validation.samples, 0) << "the end of the run has an evaluation";
  EXPECT_EQ(first.memory.peak_bytes, first.planned_peak_bytes);
  const RunRecord record = load_record(path("r/run.json"));
  EXPECT_EQ(record.state, RunState::finished);
  EXPECT_EQ(record.reason, "");
  EXPECT_EQ(record.updates, 8);
  EXPECT_TRUE(resume("r").finished_before);
  EXPECT_EQ(resume("r", {"train.updates=12"}).result.updates, 4);
  EXPECT_TRUE(resume("r").finished_before);
  (void)train(tiny(), {.threads = 1, .folder = path("whole")});
  // The state and the log also tell of the evaluation after the 8th update, which the whole run has not had.
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
  EXPECT_EQ(resume("r", {"train.epochs=3"}).result.updates, 6) << "an override of epochs replaces updates";
}

TEST_F(ResumeTest, SchedulesAreMadeForTheUpdatesOfARun) {
  const std::string schedule = "train.schedule={linear: {final: 0}}";
  struct Rates : Callback {
    bool observes() const override { return true; }
    void on_progress(const ProgressEvent& event) override {
      for (const UpdateReport& report : event.values) rates.push_back(report.learning_rate);
    }
    std::vector<float> rates;
  } in_updates, in_epochs;
  Callback* const of_updates[] = {&in_updates};
  Callback* const of_epochs[] = {&in_epochs};
  (void)train(tiny({schedule, "train.updates=12"}), {.threads = 1, .folder = path("u")}, of_updates);
  (void)train(tiny({schedule, "train.epochs=2"}), {.threads = 1, .folder = path("e")}, of_epochs);
  ASSERT_EQ(in_updates.rates.size(), 12u);
  EXPECT_EQ(in_updates.rates, in_epochs.rates);
  in_updates.rates.clear();
  (void)train(tiny({schedule, "train.updates=8"}), {.threads = 1, .folder = path("part")}, of_updates);
  ASSERT_EQ(in_updates.rates.size(), 8u);
  EXPECT_LT(in_updates.rates[7], in_epochs.rates[7]) << "it ends with the run";
}

TEST_F(ResumeTest, MaxTimeEndsASessionThatCanBeResumed) {
  const Outcome outcome =
      train(tiny({"train.epochs=1000000", "train.max_time=1s"}), {.threads = 1, .folder = path("r")});
  EXPECT_TRUE(outcome.result.stopped);
  EXPECT_GT(outcome.result.updates, 0);
  const RunRecord record = load_record(path("r/run.json"));
  EXPECT_EQ(record.state, RunState::stopped);
  EXPECT_EQ(record.reason, "train.max_time");
  const Outcome more = resume("r");
  EXPECT_GT(more.result.updates, 0) << "another session has its own time";
  EXPECT_EQ(load_record(path("r/run.json")).sessions, 2);
}

}  // namespace
}  // namespace bantam::run::train_test
