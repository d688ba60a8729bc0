// `bantam runs` as users run it: over finished, stopped, killed and running runs.
#include "bantam/base/text.h"
#include "tests/cli/program.h"

namespace bantam::cli::runs_test {
namespace {

class Runs : public ProgramTest {
 protected:
  Runs() { write_tiny_config(); }
  std::map<std::string, nlohmann::json> listed() const {
    std::map<std::string, nlohmann::json> runs;
    std::istringstream lines(run({"runs", "--json"}).out);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json json = nlohmann::json::parse(line);
      runs[json["name"]] = json;
    }
    return runs;
  }
  /// Starts a run that would last for minutes, and waits until it has a checkpoint.
  pid_t begin(const std::string& name) const {
    const pid_t child = start({"train", "tiny.yaml", "--run-dir", "runs/" + name, "--epochs", "100000", "--progress",
                               "none", "--threads", "1", "checkpoint={every: 20updates, min_interval: 0s}"});
    EXPECT_TRUE(wait_until([&] {
      const auto runs = listed();
      return runs.contains(name) && runs.at(name)["updates"] >= 20;
    }));
    return child;
  }
};

TEST_F(Runs, WithoutRunsItSaysSo) {
  EXPECT_EQ(run({"runs"}).out, "There are no runs in runs\n");
  EXPECT_EQ(run({"runs", "."}).out, "There are no runs in .\n");
  EXPECT_EQ(run({"runs", "--json"}).out, "");
  const Outcome none = run({"runs", "nowhere"});
  EXPECT_EQ(none.code, 3);
  EXPECT_EQ(none.err, "bantam: error: cannot read nowhere: No such file or directory\n");
}

TEST_F(Runs, TellsHowRunsEnded) {
  ASSERT_EQ(train("runs/finished", {"--epochs", "2"}).code, 0);
  const pid_t killed = begin("killed");
  kill(killed, SIGKILL);
  EXPECT_EQ(wait(killed).code, 128 + SIGKILL);
  const pid_t running = begin("running-with-a-name-of-many-letters-that-no-line-has-room-for-1");
  std::filesystem::create_directory(path("runs/damaged"));
  write("runs/damaged/run.json", "{}");
  const Outcome during = run({"runs"});
  const nlohmann::json now = listed().at("running-with-a-name-of-many-letters-that-no-line-has-room-for-1");
  kill(running, SIGTERM);
  EXPECT_EQ(wait(running).code, 75);
  EXPECT_EQ(during.code, 0);
  EXPECT_NE(during.err.find("runs/damaged/run.json: damaged"), std::string::npos) << during.err;
  std::istringstream lines(during.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;
  EXPECT_EQ(now["state"], "running");
  const auto runs = listed();
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs.at("finished")["state"], "finished");
  EXPECT_EQ(runs.at("finished")["epoch"], 2);
  EXPECT_EQ(runs.at("finished")["best"]["metric"], "accuracy");
  EXPECT_GT(runs.at("finished")["bytes"].get<std::uint64_t>(), 1000u);
  EXPECT_EQ(runs.at("killed")["state"], "killed");
  EXPECT_GE(runs.at("killed")["updates"], 20);
  EXPECT_EQ(runs.at(now["name"])["state"], "stopped");
  EXPECT_EQ(run({"runs", "runs/killed"}).out.find("finished"), std::string::npos) << "of one folder";
}

TEST_F(Runs, HelpEndsWithAnExample) {
  const Outcome outcome = run({"runs", "--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.ends_with("Example: bantam runs runs\n")) << outcome.out;
  EXPECT_LE(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 24);
  EXPECT_EQ(run({"runs", "a", "b"}).code, 2);
}

}  // namespace
}  // namespace bantam::cli::runs_test
