// `bantam profile step`: times that add up to the step, files where they are asked for, and errors that say what was
// expected.
#include <cmath>
#include <cstdlib>

#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"

namespace bantam::cli::profile_step_test {
namespace {

class ProfileStep : public ProgramTest {
 protected:
  ProfileStep() { write_tiny_config(); }
  Outcome profile(std::vector<std::string> more) const {
    more.insert(more.begin(), {"profile", "step", "tiny.yaml"});
    return run(more);
  }
};

double sum(const nlohmann::json& rows, const char* key) {
  double total = 0;
  for (const auto& row : rows) total += row[key].get<double>();
  return total;
}

void expect_partition(const nlohmann::json& json) {
  const double step = json["step_us"], gaps = sum(json["gaps"], "us");
  EXPECT_NEAR(sum(json["operations"], "us") + gaps, step, 1e-6 * step);
  EXPECT_NEAR(sum(json["kernels"], "us") + gaps, step, 1e-6 * step);
  EXPECT_NEAR(json["gap_us"].get<double>(), gaps, 1e-6 * step);
  EXPECT_GT(json["floor_us"].get<double>(), 0);
  EXPECT_FALSE(json["headline"].get<std::string>().empty());
}

TEST_F(ProfileStep, TimesAddUpToTheStep) {
  const Outcome outcome = profile({"--device", "cpu", "--steps", "2-4", "--threads", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  expect_partition(json);
  EXPECT_EQ(json["method"], "host clock");
  EXPECT_EQ(json["first_step"], 2);
  EXPECT_EQ(json["last_step"], 4);
  EXPECT_GT(json["unprofiled_us"].get<double>(), 0);
  for (const auto& thread : json["threads"]) {
    EXPECT_GT(thread["busy_share"].get<double>(), 0);
    EXPECT_LE(thread["busy_share"].get<double>(), 1);
  }
}

TEST_F(ProfileStep, WritesThePageAndTheTrace) {
  const Outcome outcome =
      profile({"--device", "cpu", "--steps", "2", "--out", "step.html", "--trace", "step.json", "--rows", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("others)"), std::string::npos) << "one row of operations";
  EXPECT_NE(outcome.out.find("Measured: step 2, by the host's clock"), std::string::npos) << outcome.out;
  EXPECT_LT(read("step.html").size(), 3u << 20);
  EXPECT_FALSE(nlohmann::json::parse(read("step.json"))["traceEvents"].empty());
}

TEST_F(ProfileStep, WritesAProfileForTensorBoard) {
  const Outcome outcome = profile({"--device", "cpu", "--steps", "2-3", "--tensorboard", "logs", "--rows", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("logs"))) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(files[0].string().ends_with(".xplane.pb")) << files[0];
  EXPECT_NE(outcome.err.find("Profile for TensorBoard: logs/plugins/profile/"), std::string::npos) << outcome.err;
  write("file", "");
  const Outcome refused = profile({"--device", "cpu", "--steps", "2", "--tensorboard", "file"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--tensorboard: expected a folder, file is a file"), std::string::npos) << refused.err;
}

TEST_F(ProfileStep, LinesAreAsWideAsColumnsSays) {
  const auto widest = [&](const char* columns) {
    setenv("COLUMNS", columns, 1);
    const Outcome outcome = run({"explain", "tiny.yaml", "--device", "cpu"});
    unsetenv("COLUMNS");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::size_t table = outcome.out.find("operation");
    const std::size_t rule = outcome.out.find('\n', table) + 1;
    return outcome.out.find('\n', rule) - rule;
  };
  const std::size_t whole = widest("200");
  EXPECT_LE(widest("70"), 70u);
  EXPECT_GT(whole, 70u);
  EXPECT_EQ(widest("190"), whole) << "no name is longer";
}

TEST_F(ProfileStep, TriesChanges) {
  const Outcome outcome = profile({"--device", "cpu", "--steps", "2", "--try", "--json", "fusion=off"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json changes = outcome.last_json()["changes"];
  ASSERT_EQ(changes.size(), 2u) << "fusions, and twice the batch";
  for (const auto& change : changes) EXPECT_GT(change["measured_share"].get<double>(), 0) << change;
}

TEST_F(ProfileStep, NamesNoChangeThatDoesNotFit) {
  const Outcome outcome = profile({"--device", "cpu", "--steps", "2", "--json", "recompute=all", "memory.budget=1MiB"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  ASSERT_EQ(json["changes"].size(), 2u) << "no recompute, and twice the batch";
  int refused = 0;
  for (const auto& change : json["changes"]) {
    const bool fits = change["fits"];
    EXPECT_EQ(fits, change["peak_bytes"].get<std::uint64_t>() <= 1u << 20) << change;
    if (fits) continue;
    ++refused;
    EXPECT_EQ(json["headline"].get<std::string>().find(change["change"].get<std::string>()), std::string::npos)
        << json["headline"];
  }
  EXPECT_GT(refused, 0) << json["changes"];
}

TEST_F(ProfileStep, SaysWhatWasExpected) {
  const auto message = [&](const std::vector<std::string>& more) {
    const Outcome outcome = profile(more);
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_NE(message({"--steps", "4-2"}).find("--steps: the last step comes before the first in '4-2'"),
            std::string::npos);
  EXPECT_NE(message({"--steps", "1-500"}).find("from 1 to 200, such as 2-4, got '1-500'"), std::string::npos);
  EXPECT_NE(message({"--out", "nowhere/step.html"}).find("--out: there is no folder nowhere"), std::string::npos);
}

}  // namespace
}  // namespace bantam::cli::profile_step_test
