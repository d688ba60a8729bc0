// The page and the trace of a step's profile have all of its time, and need nothing from elsewhere.
#include "bantam/cli/profile/step_files.h"

#include <map>

#include <gtest/gtest.h>

#include "bantam/base/json.h"

namespace bantam::cli::step_files_test {
namespace {

using kernels::KernelPhase;

StepProfile made_profile() {
  StepRecording recording{.method = RecordingMethod::device_events, .why_not_traced = "there is no </script>"};
  for (const std::int64_t at : {0, 1'000'000})
    recording.updates.push_back({.begin_ns = at,
                                 .end_ns = at + 1'000'000,
                                 .slices = {{.owner = "a/<b>", .kernel = "one", .begin_ns = at, .end_ns = at + 400'000},
                                            {.owner = "c",
                                             .phase = KernelPhase::backward,
                                             .kernel = "two",
                                             .begin_ns = at + 500'000,
                                             .end_ns = at + 900'000}}});
  recording.threads = {{.thread = 1, .begin_ns = 0, .end_ns = 300'000}};
  StepProfile profile = summarize({}, std::move(recording));
  profile.model = "net<1>";
  profile.device = Device::cpu();
  profile.options = {.first_step = 3, .last_step = 4};
  profile.headline = step_headline(profile);
  return profile;
}

TEST(StepTrace, SlicesOfATrackAddUpToTheSteps) {
  const nlohmann::json trace = nlohmann::json::parse(step_trace_json(made_profile()));
  std::map<std::string, int> tracks;
  std::map<int, double> sums;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") tracks[event["args"]["name"]] = event["tid"];
    if (event["ph"] == "X") sums[event["tid"]] += event["dur"].get<double>();
  }
  EXPECT_NEAR(sums[tracks["steps"]], 2000, 1e-6);
  EXPECT_NEAR(sums[tracks["kernels and gaps"]], 2000, 1e-6);
  EXPECT_NEAR(sums[tracks["operations"]], 1600, 1e-6) << "without the gaps";
  EXPECT_NEAR(sums[tracks["worker 1"]], 300, 1e-6);
}

TEST(StepPage, IsOnePageThatNothingBreaksOutOf) {
  const std::string page = step_page(made_profile());
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos) << "every part is filled in";
  EXPECT_NE(page.find("A step of net&lt;1&gt; on cpu"), std::string::npos);
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const nlohmann::json data = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["profile"]["step_us"], 1000);
  EXPECT_EQ(data["slices"]["begin"].size(), 3u) << "two kernels, and the gap between them";
  EXPECT_EQ(data["operations"][0], "a/<b>");
}

}  // namespace
}  // namespace bantam::cli::step_files_test
