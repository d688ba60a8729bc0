// `train --serve` as browsers and attackers on this machine meet it: the run goes on, whatever they do, and ends when
// it ends.
#include "bantam/cli/train/run_server.h"

#include <atomic>
#include <future>
#include <regex>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "tests/cli/http_client.h"
#include "tests/cli/program.h"

namespace bantam::cli::run_server_test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = 1 << 20;

class ServedRun : public ProgramTest {
 protected:
  ServedRun() { write_tiny_config(); }
  ~ServedRun() override {
    if (training_ > 0) {
      kill(training_, SIGKILL);
      wait(training_);
    }
  }

  /// Trains until it is stopped, and waits until it does.
  void begin(const std::vector<std::string>& more = {"train.epochs=100000"}) {
    write("stderr", "");
    std::vector<std::string> arguments = {"train", "tiny.yaml",  "--run-dir", "r",       "--threads",
                                          "1",     "--progress", "plain",     "--serve", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    training_ = start(arguments);
    std::smatch match;
    std::string told;
    ASSERT_TRUE(wait_until([&] {
      told = read("stderr");
      return std::regex_search(told, match, std::regex("http://127.0.0.1:(\\d+)/"));
    })) << told;
    port_ = std::stoi(match[1]);
    ASSERT_TRUE(wait_until([&] { return lines() > 0; }));
  }
  /// Exit code; the seconds that it took are `ended_after_`.
  int end_by(int signal) {
    const auto begin = Clock::now();
    if (signal != 0) kill(training_, signal);
    const int code = wait(std::exchange(training_, 0)).code;
    ended_after_ = seconds_since(begin);
    return code;
  }
  /// Counts the lines of metrics.jsonl.
  std::size_t lines() const {
    if (!std::filesystem::exists(path("r/metrics.jsonl"))) return 0;
    const std::string text = read("r/metrics.jsonl");
    return static_cast<std::size_t>(std::ranges::count(text, '\n'));
  }
  bool trains_on() const {
    const std::size_t before = lines();
    return wait_until([&] { return lines() > before; });
  }
  /// Kilobytes by name, of /proc/PID/status.
  std::size_t status_kb(const std::string& name) const {
    std::ifstream file("/proc/" + std::to_string(training_) + "/status");
    for (std::string word; file >> word;)
      if (word == name + ":") {
        std::size_t kb = 0;
        file >> kb;
        return kb;
      }
    return 0;
  }
  std::string get(const std::string& target, const std::string& fields = "", std::string host = "") const {
    if (host.empty()) host = own_host(port_);
    return answer_to(port_, get_request(host, target, fields));
  }
  double seconds_to_page() const {
    const auto begin = Clock::now();
    const int status = status_of_answer(get("/"));
    EXPECT_EQ(status, 200);
    return seconds_since(begin);
  }
  static nlohmann::json data_in(const std::string& text) {
    const std::string begin = "<script type=\"application/json\" id=\"data\">";
    const std::size_t at = text.find(begin) + begin.size();
    return nlohmann::json::parse(text.substr(at, text.find("</script>", at) - at));
  }

  pid_t training_ = 0;
  int port_ = 0;
  double ended_after_ = 0;
};

TEST_F(ServedRun, ThePageFollowsIt) {
  begin();
  std::string page;
  EXPECT_TRUE(wait_until([&] {
    page = get("/");
    return page.find("\"curves\":[{") != std::string::npos;
  })) << page.substr(0, 2000);
  const nlohmann::json data = data_in(page);
  EXPECT_EQ(data["live"], true);
  EXPECT_EQ(data["runs"][0]["state"], "running");
  EXPECT_TRUE(wait_until([&] {
    const std::string news = get("/data.json?seen=" + data["version"].get<std::string>());
    return status_of_answer(news) == 200 && nlohmann::json::parse(body_of(news))["version"] != data["version"];
  })) << "the page follows the run";
  EXPECT_EQ(end_by(SIGINT), 130);
  EXPECT_FALSE(HttpClient(port_).connected()) << "the server ends with the run";
}

TEST_F(ServedRun, APortThatIsTakenIsRefusedBeforeTraining) {
  const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
  EXPECT_NE(outcome.err.find("--serve: port "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("(Address already in use); port 0 finds a free one"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(path("r")));
}

TEST_F(ServedRun, OnlyItsOwnPageMayReadIt) {
  begin();
  const std::string own = "http://" + own_host(port_);
  EXPECT_EQ(status_of_answer(get("/", "", "localhost:" + std::to_string(port_))), 200);
  EXPECT_EQ(status_of_answer(get("/data.json", "Origin: " + own + "\r\nSec-Fetch-Site: same-origin\r\n")), 200);
  for (const char* host : {"example.org", "127.0.0.1.example.org", "127.0.0.1", "0.0.0.0"})
    EXPECT_EQ(status_of_answer(get("/", "", host)), 403) << host;
  for (const char* origin : {"http://example.org", "null", "http://localhost:1"})
    for (const char* target : {"/", "/data.json"})
      EXPECT_EQ(status_of_answer(get(target, "Origin: "s + origin + "\r\n")), 403) << origin << ' ' << target;
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_EQ(status_of_answer(get("/data.json", "Sec-Fetch-Site: "s + site + "\r\n")), 403) << site;
    EXPECT_EQ(status_of_answer(get("/", "Sec-Fetch-Site: "s + site + "\r\nSec-Fetch-Dest: iframe\r\n")), 403) << site;
  }
  EXPECT_EQ(status_of_answer(get("/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: document\r\n")), 200) << "a link";
  const std::string page = get("/");
  for (const char* field : {"X-Content-Type-Options: nosniff", "X-Frame-Options: DENY", "script-src 'sha256-",
                            "frame-ancestors 'none'", "Cross-Origin-Resource-Policy: same-origin"})
    EXPECT_NE(page.substr(0, page.find("\r\n\r\n")).find(field), std::string::npos) << field;
}

TEST_F(ServedRun, NoOtherFileIsServed) {
  begin();
  for (const char* target :
       {"/config.yaml", "/run.json", "/../tiny.yaml", "/%2e%2e/tiny.yaml", "/..%2ftiny.yaml", "//etc/passwd", "/%00",
        "/data.json%00", "/data.json/", "/%64ata.json", "/./", "/\\..\\x", "/index.html", "/r/run.json", "/data.jsonx"})
    EXPECT_EQ(status_of_answer(get(target)), 404) << target;
  for (const std::string& target : {"/\0"s, "/\x01"s, "/#x"s, "http://127.0.0.1/"s, "*"s, ""s})
    EXPECT_EQ(status_of_answer(get(target)), 400) << target;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "X"}) {
    const std::string answer = answer_to(port_, method + " / HTTP/1.1\r\nHost: "s + own_host(port_) + "\r\n\r\n");
    EXPECT_EQ(status_of_answer(answer), 405) << method;
    EXPECT_NE(answer.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos) << answer;
  }
  const std::string head = answer_to(port_, "HEAD / HTTP/1.1\r\nHost: " + own_host(port_) + "\r\n\r\n");
  EXPECT_EQ(status_of_answer(head), 200);
  EXPECT_EQ(body_of(head), "");
}

TEST_F(ServedRun, APostOfAnySizeTakesNoMemory) {
  begin();
  EXPECT_LT(seconds_to_page(), 5);  // the answer's own memory is there from now on
  ASSERT_TRUE(trains_on());
  const std::size_t before = status_kb("VmHWM");
  HttpClient client(port_);
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nHost: " + own_host(port_) + "\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string chunk = "100000\r\n" + std::string(kMiB, 'x') + "\r\n";
  for (int c = 0; c < 1500 && client.send(chunk); ++c) {
  }
  client.send("0\r\n\r\n");
  EXPECT_EQ(status_of_answer(client.rest()), 405);
  EXPECT_LT(status_kb("VmHWM"), before + 8 * 1024) << "kilobytes; the body has 1,500 MiB";
  EXPECT_TRUE(trains_on());
}

TEST_F(ServedRun, RequestsHaveLimits) {
  begin();
  EXPECT_LT(seconds_to_page(), 5);
  ASSERT_TRUE(trains_on());
  const std::size_t before = status_kb("VmHWM");
  const std::size_t page = get("/").size();
  std::string ranges = "bytes=0-", fields;
  for (int part = 1; part < 1300; ++part) ranges += ",0-";
  const std::string ranged = get("/", "Range: " + ranges + "\r\n");
  EXPECT_EQ(status_of_answer(ranged), 200) << "RFC 9110, section 14.2: a server may ignore the field";
  EXPECT_LT(ranged.size(), page + page / 2);
  EXPECT_NE(ranged.find("\r\nAccept-Ranges: none\r\n"), std::string::npos);
  for (int f = 0; f < 10'000; ++f) fields += fmt::format("A{}: b\r\n", f);
  EXPECT_EQ(status_of_answer(get("/", fields)), 431);
  EXPECT_EQ(status_of_answer(get("/", "A: " + std::string(20 * kMiB, 'x') + "\r\n")), 431);
  EXPECT_EQ(status_of_answer(get("/" + std::string(20 * kMiB, 'x'))), 414);
  EXPECT_EQ(status_of_answer(get("/", "Content-Length: 1\r\n")), 413);
  EXPECT_LT(status_kb("VmHWM"), before + 8 * 1024) << "kilobytes";
  EXPECT_TRUE(trains_on());
}

TEST_F(ServedRun, SlowClientsHoldUpNobodyAndAreDropped) {
  begin();
  const std::string request = get_request(own_host(port_), "/");
  std::vector<HttpClient> senders, readers;
  for (int c = 0; c < 8; ++c) senders.emplace_back(port_);
  for (int c = 0; c < 8; ++c) {
    readers.emplace_back(port_, 4096);
    readers.back().send(request);
  }
  const auto begin = Clock::now();
  std::size_t sent = 0;
  for (; seconds_since(begin) < 7; ++sent) {  // a byte every second
    for (HttpClient& client : senders) client.send(request.substr(sent, 1));
    for (HttpClient& client : readers) client.receive(1, 1ms);
    EXPECT_LT(seconds_to_page(), 1) << sent;
    std::this_thread::sleep_for(1s);
  }
  for (HttpClient& client : senders) EXPECT_TRUE(client.is_closed(1s)) << "after 5 s";
  EXPECT_TRUE(trains_on());
}

TEST_F(ServedRun, ManyConnectionsHoldUpNobody) {
  begin();
  std::vector<HttpClient> clients;
  for (int c = 0; c < 200; ++c) {
    clients.emplace_back(port_);
    if (c % 2 == 0) clients.back().send("GET / HTTP/1.1\r\n");
  }
  EXPECT_LT(seconds_to_page(), 1);
  std::size_t descriptors = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(training_) + "/fd"))
    descriptors += std::filesystem::read_symlink(entry.path()).string().starts_with("socket:") ? 1 : 0;
  EXPECT_LE(descriptors, 33u) << "32 connections, and the listener";
  EXPECT_TRUE(trains_on());
}

/// Clients in every state in which a connection stays open: idle, sending and reading a byte every 0.2 s.
class SlowClients {
 public:
  explicit SlowClients(int port) {
    for (int c = 0; c < 12; ++c) {
      clients_.emplace_back(port, 4096);
      if (c % 4 == 1) clients_.back().send(get_request(own_host(port), "/"));
      if (c % 4 > 1) clients_.back().send("GET / HTTP/1.1\r\nHost: " + own_host(port) + "\r\nA: ");
    }
    slow_ = std::thread([this] {
      while (!ends_) {
        for (std::size_t c = 0; c < clients_.size(); ++c) {
          if (c % 4 == 1) clients_[c].receive(1, 1ms);
          if (c % 4 > 1) clients_[c].send("x");
        }
        std::this_thread::sleep_for(200ms);
      }
    });
    std::this_thread::sleep_for(500ms);
  }
  ~SlowClients() {
    ends_ = true;
    slow_.join();
  }

 private:
  std::vector<HttpClient> clients_;
  std::atomic<bool> ends_ = false;
  std::thread slow_;
};

// A stopped run writes its checkpoint first: less than a second for a network as small as this, and four for a busy
// machine.
TEST_F(ServedRun, ASignalEndsItWhateverClientsDo) {
  begin();
  const SlowClients clients(port_);
  EXPECT_EQ(end_by(SIGTERM), 75) << "stopped, and can be resumed";
  EXPECT_LT(ended_after_, 5);
}

TEST_F(ServedRun, ItEndsByItselfWhateverClientsDo) {
  begin({"train.epochs=60"});
  const SlowClients clients(port_);
  ASSERT_TRUE(wait_until([&] { return read("r/run.json").find("\"finished\"") != std::string::npos; }));
  EXPECT_EQ(end_by(0), 0);
  EXPECT_LT(ended_after_, 5);
}

TEST_F(ServedRun, WithoutMemoryThePageIsRefusedAndTheRunGoesOn) {
  begin();
  ASSERT_TRUE(wait_until([&] { return lines() > 200; })) << "the training has all memory that it needs";
  std::size_t refused = 0;
  for (const std::size_t room : {8, 16, 64, 95, 97, 104, 128}) {
    const rlimit limit{.rlim_cur = status_kb("VmSize") * 1024 + room * kMiB, .rlim_max = RLIM_INFINITY};
    rlimit before{};
    ASSERT_EQ(prlimit(training_, RLIMIT_AS, &limit, &before), 0);
    for (const char* target : {"/", "/data.json"}) {
      const int status = status_of_answer(get(target));
      EXPECT_TRUE(status == 200 || status == 503 || status == 0) << status;
      refused += status == 200 ? 0 : 1;
      std::this_thread::sleep_for(1100ms);  // an answer is kept for a second
    }
    ASSERT_TRUE(trains_on()) << room << " MiB: " << read("stderr");
    ASSERT_EQ(prlimit(training_, RLIMIT_AS, &before, nullptr), 0);
  }
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(status_of_answer(get("/")), 200);
  EXPECT_EQ(end_by(SIGINT), 130);
}

TEST_F(ServedRun, AnAnswerUnderWayDoesNotKeepTheRun) {
  ASSERT_EQ(train("r", {"log={histograms: 8}"}).code, 0) << read("stderr");
  for (const char* log : {"r/histograms.jsonl", "r/metrics.jsonl"}) {
    const std::string whole = read(log);
    ASSERT_FALSE(whole.empty()) << log;
    std::ofstream file(path(log), std::ios::app);
    for (std::size_t bytes = 0; bytes < 200 * kMiB; bytes += whole.size()) file << whole;
    file.close();
    auto server = std::make_unique<RunServer>(0);
    server->follow(path("r"));
    const int port = server->port();
    const auto answer = std::async(std::launch::async, [port] {
      const auto begin = Clock::now();
      answer_to(port, get_request(own_host(port), "/"));
      return seconds_since(begin);
    });
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(answer.wait_for(0s), std::future_status::timeout) << "the files are too small for this test";
    const auto begin = Clock::now();
    server.reset();
    EXPECT_LT(seconds_since(begin), 0.1) << log;
  }
}

}  // namespace
}  // namespace bantam::cli::run_server_test
