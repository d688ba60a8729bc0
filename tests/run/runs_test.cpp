// Runs in a folder: their states, order and sizes, and folders that cannot be read.
#include "bantam/run/runs.h"

#include <optional>

#include "bantam/base/error.h"
#include "bantam/run/train/checkpoint_folder.h"
#include "bantam/run/train/run_lock.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::runs_test {
namespace {

namespace fs = std::filesystem;

class RunListTest : public RunTest {
 protected:
  void add(const std::string& name, RunState state, std::int64_t started = 1000) const {
    fs::create_directories(path(name));
    RunRecord record = record_of(tiny(), "");
    record.state = state;
    record.started = started;
    write_record(path(name) / "run.json", record);
  }
};

TEST_F(RunListTest, ARunWithoutALockIsNotRunning) {
  for (const RunState state : {RunState::starting, RunState::running}) {
    add("r", state);
    EXPECT_EQ(list_runs(path("")).runs.at(0).state, "killed");
    {
      const RunLock lock(path("r"));
      EXPECT_EQ(list_runs(path("")).runs.at(0).state, to_string(state));
    }
    write_file_atomically(path("r/.lock"), "1\nhere\nbantam\n");
    EXPECT_EQ(list_runs(path("")).runs.at(0).state, "killed") << "nobody has the file";
  }
  for (const RunState state : {RunState::stopped, RunState::finished, RunState::failed}) {
    add("r", state);
    EXPECT_EQ(list_runs(path("")).runs.at(0).state, to_string(state));
  }
}

/// run.json is of the last checkpoint, or of the beginning: metrics.jsonl has gone on.
TEST_F(RunListTest, ARunThatHasNotEndedIsWhereItsMetricsAre) {
  add("r", RunState::running);
  write_file_atomically(path("r/metrics.jsonl"),
                        R"({"kind":"update","epoch":1,"update":6,"loss":2.0,"seconds":4.0}
{"kind":"epoch","epoch":1,"loss":2.0,"validation_loss":1.5,"validation_accuracy":0.7}
{"kind":"update","epoch":2,"update":4,"loss":1.0,"seconds":7.5}
{"kind":"evaluation","epoch":2,"update":4,"validation_loss":1.2,"validation_accuracy":0.6}
{"kind":"update","epoch":2,"update":5,"loss":1.0,"seconds":8.5}
{"kind":"update","epoch":2,"upda)");
  const auto check = [&](const ListedRun& run) {
    EXPECT_EQ(run.record.epoch, 1);
    EXPECT_EQ(run.record.update, 5);
    EXPECT_EQ(run.record.updates, 11);
    EXPECT_EQ(run.record.seconds, 8.5);
    EXPECT_EQ(run.record.metric, "accuracy");
    EXPECT_EQ(run.record.best, 0.7);
    EXPECT_EQ(run.record.best_epoch, 1);
  };
  EXPECT_EQ(listed_run(path("r")).state, "killed");
  check(listed_run(path("r")));
  {
    const RunLock lock(path("r"));
    EXPECT_EQ(list_runs(path("")).runs.at(0).state, "running");
    check(list_runs(path("")).runs.at(0));
  }
  add("r", RunState::failed);
  check(listed_run(path("r")));
  add("r", RunState::stopped);
  EXPECT_EQ(listed_run(path("r")).record.updates, 0) << "its record is its last word";
  add("r", RunState::running);
  write_file_atomically(path("r/metrics.jsonl"), "{\n");
  EXPECT_EQ(listed_run(path("r")).record.updates, 0) << "damaged: the record is what is known";
}

TEST_F(RunListTest, AKilledRunIsWhereItsNewestCheckpointIs) {
  add("r", RunState::running);
  const CheckpointFacts facts{.updates = 8, .epoch = 1, .update = 2, .seconds = 3.5};
  CheckpointFolder(path("r")).write(facts, [](AtomicFile& weights, AtomicFile& state) {
    weights.write("w");
    state.write("s");
  });
  {
    const RunLock lock(path("r"));
    EXPECT_EQ(list_runs(path("")).runs.at(0).record.updates, 0) << "a run under way tells by itself";
  }
  const RunRecord killed = list_runs(path("")).runs.at(0).record;
  EXPECT_EQ(killed.epoch, 1);
  EXPECT_EQ(killed.update, 2);
  EXPECT_EQ(killed.updates, 8);
  EXPECT_EQ(killed.seconds, 3.5);
  write_file_atomically(path("r/checkpoints/update-00000008/checkpoint.json"), "{");
  EXPECT_EQ(list_runs(path("")).runs.at(0).record.updates, 0) << "a damaged one says nothing";
}

TEST_F(RunListTest, TheNewestComesFirst) {
  add("a", RunState::finished, 100);
  add("b", RunState::finished, 300);
  add("c", RunState::finished, 200);
  std::vector<fs::path> order;
  for (const ListedRun& run : list_runs(path("")).runs) order.push_back(run.path.filename());
  EXPECT_EQ(order, (std::vector<fs::path>{"b", "c", "a"}));
}

TEST_F(RunListTest, AFolderMayBeARunItself) {
  add("r", RunState::finished);
  const RunList list = list_runs(path("r"));
  ASSERT_EQ(list.runs.size(), 1u);
  EXPECT_EQ(list.runs[0].path, path("r"));
}

TEST_F(RunListTest, AllFilesCount) {
  add("r", RunState::finished);
  const std::uint64_t before = list_runs(path("")).runs.at(0).bytes;
  EXPECT_EQ(before, fs::file_size(path("r/run.json")));
  fs::create_directories(path("r/checkpoints/update-00000001"));
  write_file_atomically(path("r/checkpoints/update-00000001/state.safetensors"), std::string(1000, 'x'));
  fs::create_symlink(path("r/checkpoints/update-00000001/state.safetensors"), path("r/link"));
  EXPECT_EQ(list_runs(path("")).runs.at(0).bytes, before + 1000) << "links are not followed";
}

TEST_F(RunListTest, WhatCannotBeReadIsNamedAndStopsNothing) {
  add("r", RunState::finished);
  fs::create_directory(path("empty"));
  write_file_atomically(path("file"), "no folder");
  fs::create_symlink("loop", path("loop"));
  fs::create_directory(path("bad"));
  write_file_atomically(path("bad/run.json"), "{");
  const RunList list = list_runs(path(""));
  EXPECT_EQ(list.runs.size(), 1u);
  ASSERT_EQ(list.unreadable.size(), 2u);
  EXPECT_NE(list.unreadable[0].find("bad/run.json: damaged"), std::string::npos) << list.unreadable[0];
  EXPECT_NE(list.unreadable[1].find("loop: "), std::string::npos) << list.unreadable[1];
}

TEST_F(RunListTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW((void)list_runs(path("none")), DataError);
  EXPECT_TRUE(list_runs(path("")).runs.empty());
}

}  // namespace
}  // namespace bantam::run::runs_test
