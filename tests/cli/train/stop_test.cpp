// Signals at any moment: a run is stopped soon, and what it has trained is kept.
#include "tests/cli/program.h"

namespace bantam::cli::stop_test {
namespace {

using std::chrono::milliseconds;

class Signals : public ProgramTest {
 protected:
  Signals() { write_tiny_config(); }
  /// `train` on one thread with JSON progress; `more` before everything else.
  pid_t start_training(std::vector<std::string> more, const std::vector<int>& ignored = {}) const {
    more.insert(more.begin(), "train");
    more.insert(more.end(), {"--threads", "1", "--json", "--progress", "json"});
    return start(more, ignored);
  }
  bool logged(const std::string& run_dir, std::size_t lines) const {
    std::error_code error;
    if (!std::filesystem::exists(path(run_dir) / "metrics.jsonl", error)) return false;
    const std::string text = read(run_dir + "/metrics.jsonl");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
  }
  /// Goes on with `run_dir` to the end of `epochs`.
  Outcome resume(const std::string& run_dir, const std::string& epochs, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--resume", run_dir, epochs});
    return wait(start_training(more));
  }
  /// The last epoch's line of the metrics.
  nlohmann::json last_epoch(const std::string& run_dir) const {
    nlohmann::json last;
    for (const auto& line : read_lines(run_dir + "/metrics.jsonl"))
      if (line["kind"] == "epoch") last = line;
    return last;
  }
};

// Two updates, then 125 batches of evaluation: a second or so.
const std::vector<std::string> kLongEvaluation = {"data.train_samples=32", "data.test_samples=2000",
                                                  "model.layers.0.conv2d.filters=256",
                                                  "model.layers.0.conv2d.stride=1"};

TEST_F(Signals, AreHeardDuringTheEvaluation) {
  std::vector<std::string> arguments = {"tiny.yaml", "--run-dir", "run"};
  arguments.insert(arguments.end(), kLongEvaluation.begin(), kLongEvaluation.end());
  const pid_t child = start_training(arguments);
  ASSERT_TRUE(wait_until([&] { return logged("run", 2); }));
  std::this_thread::sleep_for(milliseconds(50));
  kill(child, SIGINT);
  const Outcome stopped = wait(child);
  ASSERT_EQ(stopped.code, 130) << "the evaluation went on to its end: " << stopped.err;
  EXPECT_TRUE(stopped.last_json()["stopped"].get<bool>());
  EXPECT_EQ(read_lines("run/metrics.jsonl").size(), 2u) << "no epoch's line yet";

  const Outcome resumed = resume("run", "train.epochs=1");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.last_json()["updates"], 0) << "only the evaluation was left";
  arguments[2] = "whole";
  ASSERT_EQ(wait(start_training(arguments)).code, 0);
  EXPECT_EQ(last_epoch("run")["validation_loss"], last_epoch("whole")["validation_loss"]);
  EXPECT_EQ(last_epoch("run")["validation_samples"], 2000);
  EXPECT_EQ(read("run/weights.safetensors"), read("whole/weights.safetensors"));
}

TEST_F(Signals, TheEvaluationShowsItsProgress) {
  std::vector<std::string> arguments = {"tiny.yaml", "--run-dir", "run"};
  arguments.insert(arguments.end(), kLongEvaluation.begin(), kLongEvaluation.end());
  const Outcome outcome = wait(start_training(arguments));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.err);
  std::int64_t last = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] != "evaluation") continue;
    EXPECT_EQ(event["batches"], 125);
    EXPECT_GT(event["batch"].get<std::int64_t>(), last);
    last = event["batch"].get<std::int64_t>();
  }
  EXPECT_GT(last, 0) << "nothing was told of the evaluation: " << outcome.err;
}

/// Schedulers and wrappers send two. A wider trial: scripts/kill_trial.py.
TEST_F(Signals, PairsLoseNothing) {
  int pair = 0;
  for (const int gap : {0, 1, 3, 5, 8, 20, 50, 99}) {
    const std::string run_dir = "run" + std::to_string(gap);
    const pid_t child = start_training({"tiny.yaml", "--run-dir", run_dir, "train.epochs=1000000"});
    ASSERT_TRUE(wait_until([&] { return logged(run_dir, 1); }));
    kill(child, SIGTERM);
    std::this_thread::sleep_for(milliseconds(gap));
    kill(child, ++pair % 2 == 0 ? SIGTERM : SIGINT);
    const Outcome stopped = wait(child);
    // A process that did not run between the two gets them in either order, whatever the gap.
    EXPECT_TRUE(stopped.code == 75 || stopped.code == 130) << gap << " ms: " << stopped.code;
    ASSERT_TRUE(std::filesystem::exists(newest(run_dir))) << gap << " ms apart, all is lost";
    const nlohmann::json end = stopped.last_json();
    EXPECT_GE(end["updates"].get<std::size_t>() + end["epochs"].get<std::size_t>(),
              read_lines(run_dir + "/metrics.jsonl").size());
    EXPECT_EQ(resume(run_dir, "train.epochs=" + std::to_string(end["epochs"].get<int>() + 1)).code, 0);
  }
}

TEST_F(Signals, ASecondLaterOneEndsAtOnceAndKeepsWhatWasSavedBefore) {
  // An update takes half a second or more, so that it is still under way when the signal has been heard.
  ASSERT_EQ(wait(start_training({"tiny.yaml", "--run-dir", "run", "data.train_samples=1024",
                                 "data.pipeline.batch.size=1024", "model.layers.0.conv2d.filters=1024"}))
                .code,
            0);
  const std::string before = read_state("run");
  const pid_t child = start_training({"--resume", "run", "train.epochs=1000"});
  ASSERT_TRUE(wait_until([&] { return logged("run", 3); }));
  kill(child, SIGTERM);
  ASSERT_TRUE(wait_until([&] { return read("stderr").find("then saving") != std::string::npos; }));
  kill(child, SIGSTOP);  // the second that passes is none of work
  std::this_thread::sleep_for(milliseconds(1100));
  kill(child, SIGTERM);
  kill(child, SIGCONT);
  const Outcome ended = wait(child);
  EXPECT_EQ(ended.code, 128 + SIGTERM) << ended.err;
  EXPECT_NE(ended.err.find("what was trained since the last checkpoint is lost"), std::string::npos) << ended.err;
  EXPECT_TRUE(read_state("run") == before);
  EXPECT_EQ(resume("run", "train.epochs=2").code, 0);
}

TEST_F(Signals, ThatAreIgnoredStayIgnored) {
  const pid_t child = start_training({"tiny.yaml", "--run-dir", "run", "train.epochs=20"}, {SIGHUP});
  ASSERT_TRUE(wait_until([&] { return logged("run", 1); }));
  kill(child, SIGHUP);
  const Outcome outcome = wait(child);
  EXPECT_EQ(outcome.code, 0) << "nohup must outlive a hangup: " << outcome.err;
  EXPECT_FALSE(outcome.last_json()["stopped"].get<bool>());
}

TEST_F(Signals, BeforeTheTrainingLeaveARunThatCanBegin) {
  const pid_t child = start_training({"tiny.yaml", "--run-dir", "run", "data.train_samples=40000"});
  std::this_thread::sleep_for(milliseconds(100));
  kill(child, SIGTERM);
  const Outcome outcome = wait(child);
  ASSERT_EQ(outcome.code, 75) << outcome.err;
  const Outcome resumed = resume("run", "train.epochs=1", {"data.train_samples=256", "--accept-changes"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

}  // namespace
}  // namespace bantam::cli::stop_test
