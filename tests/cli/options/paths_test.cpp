// Paths in configurations and arguments, as users run the program from other folders than that of their data.
#include <cstdlib>

#include <fmt/format.h>

#include "tests/cli/program.h"

namespace bantam::cli::paths_test {
namespace {

namespace fs = std::filesystem;

class Paths : public ProgramTest {
 protected:
  Paths() {
    fs::create_directories(path("project/sets"));
    fs::create_directories(path("elsewhere"));
    std::string rows = "a,b,kind\n";
    for (int i = 0; i < 60; ++i)
      rows += fmt::format("{},{},{}\n", i % 7, i % 2 * 3 + 0.5, i % 2 == 0 ? "rose" : "lily");
    write("project/sets/flowers.csv", rows);
    write_config("sets/flowers.csv");
    ::setenv("HOME", path("").c_str(), 1);
    ::setenv("BANTAM_TEST_SETS", path("project/sets").c_str(), 1);
  }
  void write_config(const std::string& data) const {
    write("project/flowers.yaml", fmt::format(R"(device: cpu
data:
  format: csv
  path: {}
  label: kind
  pipeline: [shuffle, batch: {{size: 8}}]
model: {{input: [2], layers: [dense: {{units: 2}}]}}
train: {{epochs: 2, optimizer: {{sgd: {{learning_rate: 0.05}}}}}}
)",
                                              data));
  }
  Outcome train_from(const std::string& folder, const std::string& config, const std::string& run_dir) const {
    return run_in(folder, {"train", config, "--run-dir", run_dir, "--progress", "none", "--threads", "1"});
  }
};

TEST_F(Paths, ARunIsEvaluatedAndResumedFromAnyFolder) {
  for (const char* from : {"project", "elsewhere"}) {
    const std::string run_dir = path(std::string("run-") + from);
    const Outcome trained = train_from(from, path("project/flowers.yaml"), run_dir);
    ASSERT_EQ(trained.code, 0) << trained.err;
    for (const char* folder : {"project", "elsewhere", "."}) {
      const Outcome evaluated = run_in(folder, {"evaluate", run_dir, "--json"});
      EXPECT_EQ(evaluated.code, 0) << "from " << folder << ": " << evaluated.err;
    }
    const Outcome resumed = run_in("elsewhere", {"train", "--resume", run_dir, "train.epochs=3", "--threads", "1"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
}

TEST_F(Paths, AMovedProjectIsEvaluatedWhereItNowIs) {
  ASSERT_EQ(train_from("project", "flowers.yaml", "run").code, 0);
  fs::rename(path("project"), path("moved"));
  const Outcome evaluated = run_in("moved", {"evaluate", "run", "--json"});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
}

TEST_F(Paths, HomeAndVariablesAreExpanded) {
  for (const char* data :
       {"~/project/sets/flowers.csv", "$HOME/project/sets/flowers.csv", "\"${BANTAM_TEST_SETS}/flowers.csv\""}) {
    write_config(data);
    const Outcome checked = run_in("elsewhere", {"validate", path("project/flowers.yaml")});
    EXPECT_EQ(checked.code, 0) << data << ": " << checked.err;
  }
  const Outcome trained = train_from("elsewhere", "~/project/flowers.yaml", "$HOME/run");
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(fs::exists(path("run/weights.safetensors")));
  const Outcome by_override = run_in("elsewhere", {"evaluate", "~/run", "data.path=~/project/sets/flowers.csv"});
  EXPECT_EQ(by_override.code, 0) << by_override.err;
  const Outcome exported = run_in("elsewhere", {"export", "--onnx=~/net.onnx", "~/run"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(fs::exists(path("net.onnx")));
}

TEST_F(Paths, AMissingPathNamesBothPlaces) {
  write_config("sets/roses.csv");
  const Outcome checked = run_in("elsewhere", {"validate", "../project/flowers.yaml"});
  EXPECT_EQ(checked.code, 2);
  const std::string elsewhere = fs::canonical(path("elsewhere")), project = fs::canonical(path("project"));
  EXPECT_NE(checked.err.find(fmt::format(
                "there is no file sets/roses.csv: neither in the current folder ({}) nor in {}", elsewhere, project)),
            std::string::npos)
      << checked.err;
}

}  // namespace
}  // namespace bantam::cli::paths_test
