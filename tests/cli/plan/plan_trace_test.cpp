// The planner by itself, called rather than run: what it writes and prints, and its exit codes.
#include "bantam/cli/plan/plan_trace.h"

#include <map>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "tests/run/run_fixture.h"

namespace bantam::cli::plan_trace_test {
namespace {

class PlanTraceTest : public run::RunTest {
 protected:
  /// a and b live at once, c after a: at least 150 bytes, which suffice.
  std::string trace() const {
    write_file_atomically(path("t.csv"), "id,lower,upper,size\na,0,5,100\nb,3,9,50\nc,5,9,100\n");
    return path("t.csv").string();
  }
  struct Printed {
    int code = 0;
    std::string text;
  };
  static Printed printed(const TraceOptions& options) {
    ::testing::internal::CaptureStdout();
    Printed out;
    try {
      out.code = plan_trace(options);
      std::fflush(stdout);
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
    out.text = ::testing::internal::GetCapturedStdout();
    return out;
  }
};

TEST_F(PlanTraceTest, PrintsTheArenaForPeople) {
  const Printed out = printed({.file = trace()});
  EXPECT_EQ(out.code, 0);
  EXPECT_NE(out.text.find("t.csv: 3 buffers\n"), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("arena_bytes     150\nmax_live_bytes  150\nratio           1.0000\n"), std::string::npos)
      << out.text;
  EXPECT_EQ(out.text.find("capacity"), std::string::npos) << "none was asked for";
}

TEST_F(PlanTraceTest, JsonHasAPlaceForEachBuffer) {
  const Printed out = printed({.file = trace(), .json = true});
  const auto json = nlohmann::json::parse(out.text);
  EXPECT_EQ(json["buffers"], 3);
  EXPECT_EQ(json["arena_bytes"], 150);
  EXPECT_EQ(json["max_live_bytes"], 150);
  EXPECT_EQ(json["ratio"], 1.0);
  EXPECT_EQ(json["ids"], (nlohmann::json{"a", "b", "c"}));
  EXPECT_FALSE(json.contains("fits"));
  std::map<std::string, std::int64_t> at;
  for (std::size_t i = 0; i < 3; ++i) at[json["ids"][i]] = json["offsets"][i];
  EXPECT_EQ(at["a"], at["c"]) << "one after the other, in one place";
  EXPECT_EQ(at["b"], at["a"] == 0 ? 100 : 0);
}

TEST_F(PlanTraceTest, ACapacityThatIsPassedIsExitCode4) {
  EXPECT_EQ(printed({.file = trace(), .capacity = 150}).code, 0);
  const Printed small = printed({.file = trace(), .capacity = 149, .seconds = 0.1, .json = true});
  EXPECT_EQ(small.code, 4);
  const auto json = nlohmann::json::parse(small.text);
  EXPECT_EQ(json["capacity_bytes"], 149);
  EXPECT_EQ(json["fits"], false);
}

TEST_F(PlanTraceTest, OffsetsAreWrittenBesideTheTrace) {
  (void)printed({.file = trace(), .offsets_file = path("o.csv").string()});
  const std::string text = read_file(path("o.csv"));
  EXPECT_EQ(text.rfind("id,lower,upper,size,offset\na,0,5,100,", 0), 0u) << text;
  EXPECT_NE(text.find("\nb,3,9,50,"), std::string::npos) << text;
  EXPECT_NE(text.find("\nc,5,9,100,"), std::string::npos) << text;
}

TEST_F(PlanTraceTest, AFileThatIsNoTraceIsADataError) {
  write_file_atomically(path("bad.csv"), "id,lower,upper,size\na,5,5,1\n");
  EXPECT_THROW((void)printed({.file = path("bad.csv").string()}), DataError);
  EXPECT_THROW((void)printed({.file = path("none.csv").string()}), Error);
}

}  // namespace
}  // namespace bantam::cli::plan_trace_test
