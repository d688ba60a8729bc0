// The files of a memory profile, written in this process: each tells the same allocations, to the byte.
#include "bantam/cli/profile/profile_files.h"

#include <map>
#include <sstream>

#include "tests/run/run_fixture.h"

namespace bantam::cli::profile_files_test {
namespace {

using Json = nlohmann::json;

/// Two planned steps of a small model: no kernel runs, so this takes no time.
class ProfileFilesTest : public run::RunTest {
 protected:
  ProfileFilesTest() : config_(tiny()) {
    const StepCase step{.batch = 8, .precision = config_.precision};
    profile_ = profile_steps(config_, step, {.first_step = 1, .last_step = 2, .planned = true});
  }
  const MemoryProfile& profile() const { return profile_; }
  std::size_t calls() const { return profile_.trace->events().size(); }

 private:
  RunConfig config_;
  MemoryProfile profile_;
};

std::vector<std::vector<std::string>> rows_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

TEST_F(ProfileFilesTest, EventsAddUpToWhatIsInUse) {
  const auto rows = rows_of(events_csv(profile()));
  ASSERT_EQ(rows.size(), calls() + 1) << "a header, then one row a call";
  ASSERT_EQ(rows[0].size(), 13u);
  std::int64_t in_use = 0, most = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto& row = rows[i];
    ASSERT_EQ(row.size(), 13u) << i;
    EXPECT_EQ(row[0], std::to_string(i - 1));
    in_use += (row[4] == "alloc" ? 1 : -1) * std::stoll(row[6]);
    EXPECT_EQ(row[10], std::to_string(in_use)) << i;
    EXPECT_LE(std::stoll(row[7]), std::stoll(row[6])) << "what is asked for is rounded up";
    most = std::max(most, in_use);
  }
  EXPECT_EQ(static_cast<std::uint64_t>(most), profile().planned_peak_bytes);
}

TEST_F(ProfileFilesTest, TheTracesCountersEndWhereTheProfileDoes) {
  const Json trace = Json::parse(trace_json(profile()));
  std::map<std::string, std::uint64_t> last;
  std::size_t instants = 0, steps = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "C") last[event["name"]] = event["args"]["bytes"];
    if (event["ph"] == "i") ++instants;
    if (event["ph"] == "X") {
      EXPECT_GE(event["dur"].get<double>(), 0.0);
      steps += event["tid"] == 1 ? 1 : 0;
    }
  }
  EXPECT_EQ(instants, calls());
  EXPECT_EQ(steps, profile().steps.size());
  EXPECT_EQ(last.at("in use"), profile().in_use.back());
  std::uint64_t categories = 0;
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto place = last.find(std::string(to_string(static_cast<Category>(i))));
    if (place != last.end()) categories += place->second;
  }
  EXPECT_EQ(categories, profile().in_use.back()) << "each byte has one category";
}

TEST_F(ProfileFilesTest, TheSnapshotIsOnePickle) {
  const std::string bytes = snapshot_pickle(profile());
  EXPECT_EQ(bytes.substr(0, 2), "\x80\x04");
  EXPECT_EQ(bytes.back(), '.');
  for (const char* key : {"segments", "device_traces", "active_allocated", "segment_alloc", "free_completed"})
    EXPECT_NE(bytes.find(key), std::string::npos) << key;
}

TEST_F(ProfileFilesTest, ThePageHasTheRunsDataAndNothingFromElsewhere) {
  const std::string page = report_html(profile());
  EXPECT_EQ(page.find("{{"), std::string::npos) << "a placeholder was not filled";
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
  EXPECT_NE(page.find("\"planned_peak_bytes\":" + std::to_string(profile().planned_peak_bytes)), std::string::npos);
  EXPECT_NE(page.find("Memory of tiny on"), std::string::npos);
}

TEST_F(ProfileFilesTest, AboutSaysWhatRan) {
  const nlohmann::ordered_json about = about_json(profile());
  EXPECT_EQ(about["model"], "tiny");
  EXPECT_EQ(about["batch"], 8);
  EXPECT_EQ(about["precision"], "float32");
  EXPECT_EQ(about["recompute"], "none");
  EXPECT_EQ(about["accumulate"], 1);
}

}  // namespace
}  // namespace bantam::cli::profile_files_test
