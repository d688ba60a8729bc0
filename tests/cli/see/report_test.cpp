// `bantam report` and `train --serve`: pages of runs as users get them.
#include <array>
#include <regex>
#include <set>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "tests/cli/program.h"

namespace bantam::cli {
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
  /// What a server on this machine answers; empty: it cannot be reached.
  static std::string get(int port, const std::string& path, const std::string& host) {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    std::string answer;
    if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
      (void)send(connection, request.data(), request.size(), MSG_NOSIGNAL);
      std::array<char, 4096> part;
      for (ssize_t count = 0; (count = recv(connection, part.data(), part.size(), 0)) > 0;)
        answer.append(part.data(), static_cast<std::size_t>(count));
    }
    close(connection);
    return answer;
  }
  static std::string own(int port) { return "127.0.0.1:" + std::to_string(port); }
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

TEST_F(Report, ARunIsServedWhileItTrains) {
  write("stderr", "");
  const pid_t training = start({"train", "tiny.yaml", "--run-dir", "r", "--threads", "1", "--progress", "plain",
                                "--serve", "0", "train.epochs=100000"});
  std::smatch match;
  ASSERT_TRUE(wait_until([&] {
    const std::string text = read("stderr");
    return std::regex_search(text, std::regex("http://127.0.0.1:\\d+/")) ||
           text.find("built without") != std::string::npos;
  })) << read("stderr");
  const std::string told = read("stderr");
  if (told.find("built without cpp-httplib") != std::string::npos) {
    EXPECT_EQ(wait(training).code, 2);
    GTEST_SKIP() << "no cpp-httplib: skipped";
  }
  ASSERT_TRUE(std::regex_search(told, match, std::regex("http://127.0.0.1:(\\d+)/")));
  const int port = std::stoi(match[1]);
  std::string page;
  EXPECT_TRUE(wait_until([&] {
    page = get(port, "/", own(port));
    return page.find("\"curves\":[{") != std::string::npos;
  })) << page.substr(0, 2000);
  const nlohmann::json data = data_in(page);
  EXPECT_EQ(data["live"], true);
  EXPECT_EQ(data["runs"][0]["state"], "running");
  EXPECT_TRUE(wait_until([&] {
    const std::string news = get(port, "/data.json?seen=" + data["version"].get<std::string>(), own(port));
    const std::size_t body = news.find("\r\n\r\n");
    return body != std::string::npos && news.starts_with("HTTP/1.1 200") &&
           nlohmann::json::parse(news.substr(body + 4))["version"] != data["version"];
  })) << "the page follows the run";
  EXPECT_TRUE(get(port, "/", "example.org").starts_with("HTTP/1.1 403")) << "a name that is not this machine's";
  EXPECT_TRUE(get(port, "/config.yaml", own(port)).starts_with("HTTP/1.1 404"));
  kill(training, SIGINT);
  EXPECT_EQ(wait(training).code, 130);
  EXPECT_EQ(get(port, "/", own(port)), "") << "the server ends with the run";
}

TEST_F(Report, APortThatIsTakenIsRefusedBeforeTraining) {
  const int holder = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(holder, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(holder, 1), 0);
  getsockname(holder, reinterpret_cast<sockaddr*>(&address), &size);
  const Outcome outcome = train("r", {"--serve", std::to_string(ntohs(address.sin_port))});
  close(holder);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--serve: "), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(path("r")));
}

}  // namespace
}  // namespace bantam::cli
