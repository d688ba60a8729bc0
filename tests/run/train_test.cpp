// run::train as a program calls it: events, files, stopping, going on to the same bits, and errors.
#include "bantam/run/train.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run {
namespace {

using TrainTest = RunTest;

struct Events : Callback, RunObserver {
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override { updates = event.update, losses.push_back(event.epoch_loss); }
  void on_epoch_end(const EpochEvent& event) override { epochs.push_back(event.validation.samples); }
  void on_settled(const RunConfig&, const Settled&) override { order += "settled "; }
  void on_ready() override { order += "ready "; }
  void on_begin(const RunBeginning& run) override {
    order += "begin ";
    in_use = run.runtime.allocator(run.config.device).stats().in_use_bytes;
  }
  void on_trained() override { order += "trained "; }
  void on_saved() override { order += "saved"; }
  void on_warning(std::string_view text) override { warnings.emplace_back(text); }

  std::int64_t updates = 0;
  std::vector<double> losses;
  std::vector<std::int64_t> epochs;
  std::string order;
  std::uint64_t in_use = 0;
  std::vector<std::string> warnings;
};

TEST_F(TrainTest, TellsCallbacksAndSaves) {
  Events events;
  Callback* const callbacks[] = {&events};
  const TrainOutcome outcome = train(tiny(), {.threads = 1, .run_dir = path("r"), .observer = &events}, callbacks);
  EXPECT_EQ(events.order, "settled ready begin trained saved");
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
  EXPECT_FALSE(std::filesystem::exists(outcome.folder / ".lock"));
}

TEST_F(TrainTest, AStopIsGoneOnFromToTheSameBits) {
  const TrainOutcome whole = train(tiny(), {.threads = 1, .run_dir = path("whole")});
  int asked = 0;
  const TrainOutcome stopped =
      train(tiny(), {.threads = 1, .run_dir = path("r"), .stop = [&asked] { return ++asked > 4; }});
  ASSERT_TRUE(stopped.result.stopped);
  EXPECT_LT(stopped.result.updates, 12);
  RunDirectory folder = RunDirectory::open(path("r"));
  const TrainOutcome rest = train(read_run_config(folder.config(), {}), {.threads = 1, .resume = &folder});
  EXPECT_FALSE(rest.result.stopped);
  EXPECT_EQ(stopped.result.updates + rest.result.updates, 12);
  EXPECT_EQ(read_file(path("r/weights.safetensors")), read_file(path("whole/weights.safetensors")));
  EXPECT_EQ(read_file(path("r/config.yaml")), read_file(path("whole/config.yaml")));
}

TEST_F(TrainTest, WhatIsOpenIsSettledInTheOutcome) {
  const RunConfig open =
      tiny({"data.pipeline.batch={size: auto, max: 32}", "memory.limits={cpu: 64MiB}", "train.epochs=1"});
  const TrainOutcome outcome = train(open, {.threads = 1, .run_dir = path("r")});
  EXPECT_EQ(outcome.config.data->pipeline.batch_size, 32);
  EXPECT_TRUE(open.data->pipeline.batch_size_is_auto) << "the caller's stays as it is";
  const RunConfig written = read_run_config(path("r/config.yaml"), {});
  EXPECT_EQ(written.data->pipeline.batch_size, 32);
  EXPECT_FALSE(written.data->pipeline.batch_size_is_auto);
}

TEST_F(TrainTest, RefusesBeforeItMakesAnything) {
  RunConfig without = tiny();
  without.data.reset();
  EXPECT_THROW((void)train(without, {.run_dir = path("r")}), ConfigError);
  EXPECT_THROW((void)train(tiny({"memory.budget=1KiB"}), {.run_dir = path("r")}), OutOfMemory);
  EXPECT_THROW((void)train(tiny({"memory.limits={cpu: 200KiB}"}), {.run_dir = path("r")}), OutOfMemory);
  EXPECT_FALSE(std::filesystem::exists(path("r")));
}

TEST_F(TrainTest, AFolderWithARunIsLeftAlone) {
  (void)train(tiny({"train.epochs=1"}), {.threads = 1, .run_dir = path("r")});
  const std::string before = read_file(path("r/metrics.jsonl"));
  EXPECT_THROW((void)train(tiny(), {.threads = 1, .run_dir = path("r")}), ConfigError);
  EXPECT_EQ(read_file(path("r/metrics.jsonl")), before);
  (void)train(tiny({"train.log_every=6updates"}), {.threads = 1, .run_dir = path("r"), .overwrite = true});
  const std::string after = read_file(path("r/metrics.jsonl"));
  EXPECT_EQ(std::count(after.begin(), after.end(), '\n'), 4) << "a line of updates and one of the epoch, twice";
}

TEST_F(TrainTest, WhatACallbackThrowsSavesTheRun) {
  struct Failing : Callback {
    void on_epoch_end(const EpochEvent&) override { throw DataError("no more"); }
  } failing;
  Events events;
  Callback* const callbacks[] = {&failing};
  EXPECT_THROW((void)train(tiny(), {.threads = 1, .run_dir = path("r"), .observer = &events}, callbacks), DataError);
  EXPECT_EQ(events.order, "settled ready begin trained saved");
  ASSERT_EQ(events.warnings.size(), 1u);
  EXPECT_NE(events.warnings[0].find("which are saved in"), std::string::npos);
  RunDirectory folder = RunDirectory::open(path("r"));
  EXPECT_FALSE(train(read_run_config(folder.config(), {}), {.threads = 1, .resume = &folder}).result.stopped);
}

}  // namespace
}  // namespace bantam::run
