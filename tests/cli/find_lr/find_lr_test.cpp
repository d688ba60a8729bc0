// `bantam find-lr` as users run it.
#include "tests/cli/program.h"

namespace bantam::cli::find_lr_test {
namespace {

class FindLr : public ProgramTest {
 protected:
  FindLr() { write_tiny_config(); }
};

TEST_F(FindLr, DrawsSuggestsAndLeavesNoRun) {
  const Outcome outcome = run({"find-lr", "tiny.yaml", "--updates", "40", "--from", "1e-5", "--out", "page.html"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("smoothed loss of"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" |*"), std::string::npos) << "a curve";
  EXPECT_NE(outcome.out.find("suggestion: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("a tenth of the rate at the minimum: "), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(path("runs")));
  const std::string page = read("page.html");
  EXPECT_NE(page.find("<polyline"), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos) << "it needs no other file";
}

TEST_F(FindLr, TellsItsPointsAsJson) {
  const Outcome outcome = run({"find-lr", "tiny.yaml", "--updates", "100", "--from", "1e-5", "--to", "0.5", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  ASSERT_EQ(json["points"].size(), json["updates"]);
  EXPECT_NEAR(json["points"][0]["learning_rate"].get<double>(), 1e-5, 1e-10);
  EXPECT_EQ(json["suggestion"], json["steepest"]);
  EXPECT_GT(json["suggestion"].get<double>(), 1e-5);
  EXPECT_LT(json["suggestion"].get<double>(), 0.5);
}

TEST_F(FindLr, SaysWhatIsWrong) {
  const Outcome range = run({"find-lr", "tiny.yaml", "--from", "1", "--to", "0.1"});
  EXPECT_EQ(range.code, 2);
  EXPECT_NE(range.err.find("from a positive learning rate to a larger one, got 1 to 0.1"), std::string::npos)
      << range.err;
  EXPECT_EQ(run({"find-lr", "tiny.yaml", "--updates", "3"}).code, 2);
}

}  // namespace
}  // namespace bantam::cli::find_lr_test
