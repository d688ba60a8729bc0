// `bantam report`: pages of runs as users get them.
#include <regex>
#include <set>

#include "tests/cli/program.h"

namespace bantam::cli::report_test {
namespace {

class Report : public ProgramTest {
 protected:
  Report() { write_tiny_config(); }

  /// The data in a page.
  nlohmann::json data_of(const std::string& page) const { return data_in(read(page)); }
  static nlohmann::json data_in(const std::string& text) {
    const std::string begin = "<script type=\"application/json\" id=\"data\">";
    const std::size_t at = text.find(begin) + begin.size();
    return nlohmann::json::parse(text.substr(at, text.find("</script>", at) - at));
  }
};

TEST_F(Report, APageOfOneRunLiesInItsFolder) {
  ASSERT_EQ(train("r", {"train.epochs=2", "checkpoint.best={metric: loss}"}).code, 0);
  const Outcome outcome = run({"report", "r", "--json", "--progress", "none"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_EQ(json["file"], "r/report.html");
  EXPECT_EQ(json["bytes"], read("r/report.html").size());
  EXPECT_EQ(json["runs"][0]["weights"], "r/weights-best.safetensors");
  EXPECT_EQ(json["runs"][0]["held_out"]["samples"], 40);
  const std::string page = read("r/report.html");
  EXPECT_LE(page.size(), 3'000'000u);
  EXPECT_NE(page.find("<p id=\"headline\">r came to validation loss "), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"https?:"))) << "nothing is fetched";
  const nlohmann::json data = data_of("r/report.html");
  ASSERT_EQ(data["runs"].size(), 1u);
  const nlohmann::json& one = data["runs"][0];
  EXPECT_EQ(one["held_out"]["worst"].size(), 32u);
  EXPECT_EQ(one["held_out"]["random"].size(), 32u);
  EXPECT_EQ(one["held_out"]["matrix"].size(), 10u);
  EXPECT_TRUE(one["held_out"]["worst"][0]["image"].is_string());
  EXPECT_EQ(one["config_text"], read("r/config.yaml"));
  std::set<std::string> curves;
  for (const auto& curve : one["curves"]) {
    curves.insert(curve["name"]);
    EXPECT_EQ(curve["x"].size(), curve["y"].size());
  }
  for (const char* name : {"loss", "accuracy", "learning_rate", "gradient_norm", "images_per_s", "peak_bytes",
                           "validation_loss", "validation_accuracy"})
    EXPECT_TRUE(curves.contains(name)) << name;
  EXPECT_GE(one["tensors"].size(), 6u);
}

TEST_F(Report, AnOverwrittenRunHasNoPageOfTheOldOne) {
  ASSERT_EQ(train("r").code, 0);
  ASSERT_EQ(run({"report", "r", "--samples", "0"}).code, 0);
  ASSERT_EQ(train("r", {"--overwrite"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("r/report.html")));
}

TEST_F(Report, RunsAreComparedOnOnePage) {
  ASSERT_EQ(train("runs/a").code, 0);
  ASSERT_EQ(train("runs/b", {"train.optimizer.adam.learning_rate=1.0e-2"}).code, 0);
  const Outcome outcome = run({"report", "runs", "--samples", "0", "--out", "both.html"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("is the best of 2 runs: validation accuracy "), std::string::npos) << outcome.out;
  const nlohmann::json data = data_of("both.html");
  ASSERT_EQ(data["runs"].size(), 2u);
  EXPECT_EQ(data["differences"].size(), 1u);
  EXPECT_EQ(data["differences"][0]["name"], "train.optimizer.adam.learning_rate");
  EXPECT_FALSE(data["runs"][0].contains("held_out"));
  EXPECT_NE(data["runs"][0]["is_best"], data["runs"][1]["is_best"]);
}

TEST_F(Report, ErrorsSayWhatWasExpected) {
  std::filesystem::create_directory(path("empty"));
  const Outcome none = run({"report", "empty"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("empty holds no run: there is no run.json in it"), std::string::npos) << none.err;
  EXPECT_EQ(run({"report"}).code, 2);
  ASSERT_EQ(train("r").code, 0);
  EXPECT_EQ(run({"report", "r", "--out", "nowhere/page.html"}).code, 3);
  write("r/metrics.jsonl", "no json\n");
  const Outcome damaged = run({"report", "r"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_NE(damaged.err.find("r/metrics.jsonl:1: expected a JSON object"), std::string::npos) << damaged.err;
}

TEST_F(Report, AWatchedRunEndsWithItsAnswers) {
  ASSERT_EQ(train("r").code, 0);
  const Outcome ended = run({"report", "r", "--watch", "--json", "--progress", "none"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(ended.last_json()["runs"][0].contains("held_out")) << "the run has ended: there is nothing to wait for";
  EXPECT_EQ(read("r/report.html").find("http-equiv=\"refresh\""), std::string::npos);
}

TEST_F(Report, TheWatchedPageFollowsARunUnderWay) {
  const auto has = [this](const std::string& text) {
    return std::filesystem::exists(path("r/report.html")) && read("r/report.html").find(text) != std::string::npos;
  };
  const pid_t training =
      start({"train", "tiny.yaml", "--run-dir", "r", "--threads", "1", "--progress", "none", "train.epochs=100000"});
  EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(path("r/metrics.jsonl")); }));
  const pid_t watching = start({"report", "r", "--watch", "--threads", "1", "--progress", "none"});
  EXPECT_TRUE(wait_until([&] { return has("http-equiv=\"refresh\"") && has("\"curves\":[{"); }));
  const std::string first = read("r/report.html");
  EXPECT_EQ(data_of("r/report.html")["runs"][0]["state"], "running");
  EXPECT_TRUE(wait_until([&] { return read("r/report.html") != first; })) << "the run has news";
  kill(training, SIGINT);
  EXPECT_EQ(wait(training).code, 130);
  EXPECT_EQ(wait(watching).code, 0) << "it ends with the run";
  EXPECT_FALSE(has("http-equiv=\"refresh\""));
  EXPECT_EQ(data_of("r/report.html")["runs"][0]["held_out"]["samples"], 40);
}

}  // namespace
}  // namespace bantam::cli::report_test
