// run.json, and the commit that a folder is at.
#include "bantam/run/train/run_record.h"

#include <fstream>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_record_test {
namespace {

namespace fs = std::filesystem;

class RunRecordTest : public RunTest {
 protected:
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(path(name).parent_path());
    std::ofstream(path(name)) << text;
  }
  const std::string one_ = std::string(40, 'a'), other_ = "0123456789abcdef0123456789abcdef01234567";
};

TEST_F(RunRecordTest, WhatIsWrittenIsReadAgain) {
  RunRecord record = record_of(tiny(), "bantam train tiny.yaml");
  EXPECT_EQ(record.name, "tiny");
  EXPECT_EQ(record.epochs, 2);
  ASSERT_EQ(record.class_names.size(), 10u);
  EXPECT_EQ(record.class_names[1], "ring");
  EXPECT_EQ(record.config_sha256.size(), 64u);
  EXPECT_EQ(record.versions.at(0).first, "bantam");
  for (const RunState state :
       {RunState::starting, RunState::running, RunState::stopped, RunState::finished, RunState::failed}) {
    record.state = state;
    write_record(path("run.json"), record);
    EXPECT_EQ(read_record(path("run.json")), record);
  }
  EXPECT_EQ(record.ranks, 1);
  record.ranks = 4;
  record.reason = "why";
  record.seconds = 1.5;
  record.epoch = 1, record.update = 2, record.updates = 8;
  record.metric = "accuracy", record.best = 0.75, record.best_epoch = 1;
  write_record(path("run.json"), record);
  EXPECT_EQ(load_record(path("run.json")), record);
}

TEST_F(RunRecordTest, TellsHowManyRanksThereAre) {
  RunConfig config = tiny();
  config.assigned = {2, 1, 1};
  EXPECT_EQ(record_of(config, "").ranks, 3);
  write_record(path("run.json"), record_of(config, ""));
  std::string text = read_file(path("run.json"));
  const std::size_t at = text.find("\"ranks\": 3,");
  ASSERT_NE(at, std::string::npos) << text;
  text.erase(at, std::string("\"ranks\": 3,").size());
  write("run.json", text);
  EXPECT_EQ(load_record(path("run.json")).ranks, 1) << "a run from before it was noted";
}

TEST_F(RunRecordTest, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(read_record(path("run.json")), std::nullopt);
  EXPECT_THROW((void)load_record(path("run.json")), DataError);
  write_record(path("run.json"), record_of(tiny(), ""));
  const std::string sound = read_file(path("run.json"));
  std::string unknown = sound;
  unknown.replace(unknown.find("starting"), 8, "sleeping");
  for (const std::string& text : {unknown, sound.substr(0, 100), std::string("{}"), std::string()}) {
    write("run.json", text);
    EXPECT_EQ(read_record(path("run.json")), std::nullopt);
    try {
      (void)load_record(path("run.json"));
      ADD_FAILURE() << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("run.json: damaged: "), std::string::npos) << error.what();
      const bool names_state = std::string(error.what()).find("'sleeping'") != std::string::npos;
      EXPECT_EQ(names_state, text == unknown) << error.what();
    }
  }
}

TEST_F(RunRecordTest, TextThatIsNoTextIsWrittenAllTheSame) {
  RunRecord record = record_of(tiny(), "bantam \xff");
  EXPECT_NO_THROW(write_record(path("run.json"), record));
  EXPECT_EQ(load_record(path("run.json")).command, "bantam \xef\xbf\xbd");
}

TEST_F(RunRecordTest, TheCommitOfAReference) {
  write("work/.git/HEAD", "ref: refs/heads/main\n");
  EXPECT_EQ(git_commit_of(path("work")), "") << "nothing was committed yet";
  write("work/.git/refs/heads/main", one_ + "\n");
  EXPECT_EQ(git_commit_of(path("work")), one_);
  fs::create_directories(path("work/a/b"));
  EXPECT_EQ(git_commit_of(path("work/a/b")), one_) << "of a folder below";
  EXPECT_EQ(git_commit_of(path("elsewhere")), git_commit_of(path("").parent_path()));
}

TEST_F(RunRecordTest, TheCommitOfAPackedReference) {
  write("work/.git/HEAD", "ref: refs/heads/main\n");
  write("work/.git/packed-refs",
        "# pack-refs with: peeled\n" + one_ + " refs/heads/main2\n" + other_ + " refs/heads/main\n^" + one_ + "\n");
  EXPECT_EQ(git_commit_of(path("work")), other_);
}

TEST_F(RunRecordTest, TheCommitOfADetachedHead) {
  write("work/.git/HEAD", other_ + "\n");
  EXPECT_EQ(git_commit_of(path("work")), other_);
  write("work/.git/HEAD", "something else\n");
  EXPECT_EQ(git_commit_of(path("work")), "");
}

TEST_F(RunRecordTest, TheCommitOfAnotherWorkTree) {
  write("main/.git/HEAD", "ref: refs/heads/main\n");
  write("main/.git/refs/heads/topic", other_ + "\n");
  write("main/.git/worktrees/topic/HEAD", "ref: refs/heads/topic\n");
  write("main/.git/worktrees/topic/commondir", "../..\n");
  write("topic/.git", "gitdir: ../main/.git/worktrees/topic\n");
  EXPECT_EQ(git_commit_of(path("topic")), other_);
  write("topic/.git", "gitdir: " + path("main/.git/worktrees/topic").string() + "\n");
  EXPECT_EQ(git_commit_of(path("topic")), other_);
  write("topic/.git", "no such thing\n");
  EXPECT_EQ(git_commit_of(path("topic")), "");
}

}  // namespace
}  // namespace bantam::run::run_record_test
