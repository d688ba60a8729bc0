// `bantam sweep` and `bantam train --repeat` as users run them: tables, JSON, stops and what follows them, errors.
#include <cmath>

#include "tests/cli/program.h"

namespace bantam::cli::sweep_test {
namespace {

class SweepProgram : public ProgramTest {
 protected:
  SweepProgram() { write_tiny_config(); }
  Outcome sweep(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"sweep", "tiny.yaml", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  static std::size_t lines_with(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  }
};

constexpr const char* kRates = "train.optimizer.adam.learning_rate=1e-6,5e-3";

TEST_F(SweepProgram, PrintsSettingsTheBestFirstAndJson) {
  const Outcome table = sweep({"train.epochs=10", "--set", kRates, "--repeat", "2", "--out", "s"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(table.out.starts_with("tiny: 4 of 4 runs (2 settings, 2 seeds), ")) << table.out;
  EXPECT_LT(table.out.find("\n5e-3"), table.out.find("\n1e-6")) << table.out;
  EXPECT_NE(table.out.find(" ± "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("  best        train.optimizer.adam.learning_rate=5e-3\n"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("  runs in     s/\n"), std::string::npos) << table.out;
  EXPECT_NE(table.err.find("run 1/4: learning_rate=1e-6, seed=7\n"), std::string::npos) << table.err;
  EXPECT_EQ(lines_with(table.err, "epoch 10/10 loss"), 4u) << table.err;
  EXPECT_EQ(lines_with(table.err, ", ETA "), 3u) << "after all runs but the last\n" << table.err;
  const Outcome again = run({"sweep", "--resume", "s", "--json", "--progress", "none"});
  ASSERT_EQ(again.code, 0) << again.err;
  const nlohmann::json json = again.last_json();
  EXPECT_EQ(json["watched"], "validation_accuracy");
  EXPECT_EQ(json["ended"], 4);
  EXPECT_EQ(json["settings"][0]["set"]["train.optimizer.adam.learning_rate"], "5e-3");
  const nlohmann::json& accuracy = json["settings"][0]["validation_accuracy"];
  const double a = json["settings"][0]["runs"][0]["validation_accuracy"],
               b = json["settings"][0]["runs"][1]["validation_accuracy"];
  EXPECT_DOUBLE_EQ(accuracy["mean"].get<double>(), (a + b) / 2);
  EXPECT_NEAR(accuracy["deviation"].get<double>(), std::abs(a - b) / std::sqrt(2.0), 1e-12);
  const std::string folder = json["settings"][0]["runs"][1]["run_dir"];
  EXPECT_EQ(folder, "s/2-learning_rate=5e-3-seed=8");
  const Outcome alone = train("alone", {"--seed", "8", "train.epochs=10", "train.optimizer.adam.learning_rate=5e-3"});
  EXPECT_EQ(alone.last_json()["accuracy"].get<double>(), b) << "a run of a sweep is that run";
}

TEST_F(SweepProgram, TrainRepeatIsASweepOfSeeds) {
  const Outcome repeated =
      run({"train", "tiny.yaml", "--repeat", "2", "--run-dir", "r", "--threads", "1", "--progress", "none"});
  ASSERT_EQ(repeated.code, 0) << repeated.err;
  EXPECT_EQ(repeated.err, "");
  EXPECT_TRUE(repeated.out.starts_with("tiny: 2 of 2 runs (1 setting, 2 seeds), ")) << repeated.out;
  for (const char* part : {"\n7 ", "\n8 ", "\nmean "})
    EXPECT_NE(repeated.out.find(part), std::string::npos) << repeated.out;
  EXPECT_TRUE(std::filesystem::exists(path("r/seed=8/weights.safetensors")));
  const Outcome more = run({"sweep", "--resume", "r", "--repeat", "3", "--threads", "1"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_NE(more.err.find("2 of 3 runs in r ended before\n"), std::string::npos) << more.err;
  EXPECT_EQ(lines_with(more.err, "epoch 1/1 loss"), 1u) << more.err;
  EXPECT_NE(run({"train", "--resume", "r"})
                .err.find("is the folder of a sweep, which `bantam sweep --resume r` goes on with"),
            std::string::npos);
  EXPECT_EQ(run({"train", "tiny.yaml", "--repeat", "2", "--overwrite"}).code, 2);
  EXPECT_EQ(run({"train", "tiny.yaml", "--repeat", "0"}).code, 2);
}

TEST_F(SweepProgram, GoesOnAfterASignalAndAfterAKill) {
  const std::vector<std::string> arguments = {"sweep",
                                              "tiny.yaml",
                                              "--set",
                                              kRates,
                                              "--out",
                                              "s",
                                              "--epochs",
                                              "100000",
                                              "--threads",
                                              "1",
                                              "--progress",
                                              "none",
                                              "checkpoint={every: 20updates, min_interval: 0s}"};
  const auto has_checkpoint = [&] { return !newest("s/1-learning_rate=1e-6-seed=7").parent_path().empty(); };
  const pid_t child = start(arguments);
  ASSERT_TRUE(wait_until(has_checkpoint));
  kill(child, SIGTERM);
  const Outcome stopped = wait(child);
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_NE(stopped.out.find("2 of the runs have not ended; go on with\n  bantam sweep --resume s\n"),
            std::string::npos)
      << stopped.out;
  const pid_t next = start({"sweep", "--resume", "s", "--progress", "json", "--threads", "1"});
  ASSERT_TRUE(wait_until([&] { return read("stderr").find(R"("event":"run_begin","run":1)") != std::string::npos; }));
  kill(next, SIGKILL);
  EXPECT_EQ(wait(next).code, 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(path("s/sweep.json")));
  const nlohmann::json listed = run({"runs", "s", "--json"}).last_json();
  EXPECT_EQ(listed["name"], "1-learning_rate=1e-6-seed=7");
}

TEST_F(SweepProgram, AFailedRunIsToldAndTheOthersAreTrained) {
  const Outcome outcome = sweep({"--set", "train.optimizer={sgd: {learning_rate: 1e30}},{sgd: {learning_rate: 0.01}}",
                                 "--out", "s", "--progress", "plain"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("warning: run 1 of 2 (optimizer={sgd: {learning_rate: 1e30}}) has failed: "),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.out.find("  failed      optimizer={sgd: {learning_rate: 1e30}}: "), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("1 of the runs has not ended; go on with\n"), std::string::npos) << outcome.out;
  EXPECT_TRUE(std::filesystem::exists(path("s/2-optimizer=_sgd___learning_rate__0.01__-seed=7/weights.safetensors")));
}

TEST_F(SweepProgram, ErrorsAreSaidBeforeTraining) {
  const auto error_of = [&](const std::vector<std::string>& more) {
    const Outcome outcome = sweep(more);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(error_of({}), "bantam: error: sweep: name what varies: --set KEY=VALUE,VALUE,… or --repeat N\n");
  EXPECT_NE(error_of({"--set", "train.epoch=1,2"}).find("unknown key 'epoch' in train; did you mean 'epochs'?"),
            std::string::npos);
  EXPECT_NE(error_of({"--set", "train.epochs=1,two", "--out", "s"}).find("'two'"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("s")));
  EXPECT_NE(error_of({"--resume", "s"}).find("--resume DIR has the sweep's own configuration"), std::string::npos);
  EXPECT_EQ(run({"sweep", "--resume", "s"}).code, 3);
  EXPECT_EQ(run({"sweep"}).code, 2);
  write("bare.yaml", "model: {zoo: resnet18_cifar}\n");
  EXPECT_NE(run({"sweep", "bare.yaml", "--repeat", "2"}).err.find("missing key 'data': training needs data"),
            std::string::npos);
}

TEST_F(SweepProgram, HelpEndsWithAnExample) {
  const Outcome outcome = run({"sweep", "--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.ends_with("--set train.optimizer.adam.learning_rate=1e-3,3e-3\n")) << outcome.out;
  EXPECT_LE(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 40);
}

}  // namespace
}  // namespace bantam::cli::sweep_test
