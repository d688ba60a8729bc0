// A server whose clients are slow, many or rude, and whose memory ends.
#include "bantam/cli/train/http_server.h"

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "tests/cli/http_client.h"

namespace {
std::atomic<long> allocations_left = -1;  // of other threads than the test's, before one fails; negative: none does
const std::thread::id test_thread = std::this_thread::get_id();
bool is_to_fail() {
  if (allocations_left < 0 || std::this_thread::get_id() == test_thread) return false;
  return allocations_left.fetch_sub(1) == 0;
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = is_to_fail() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace bantam::cli::http_server_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

const HttpLimits kShort = {.request = 1500ms, .progress = 1500ms, .linger = 300ms};

HttpAnswer hello(const HttpRequest& request, int) { return text_answer(200, "hello " + request.path); }
std::string get(const HttpServer& server, const std::string& path = "/") {
  return answer_to(server.port(), get_request("a", path));
}
/// The seconds that an answer takes; large where there is none.
double seconds_to_answer(const HttpServer& server) {
  const auto begin = Clock::now();
  return status_of_answer(get(server, "/quick")) == 200 ? seconds_since(begin) : 1e9;
}
/// Half of the deadlines after which slow clients are dropped: what waits for them takes longer. A busy machine needs
/// less for one answer.
constexpr double kAtOnce = 0.75;

TEST(HttpServer, AnswersOneRequestAConnection) {
  HttpServer server(0, hello);
  const std::string answer = get(server, "/x?y=z");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << answer;
  for (const char* field :
       {"\r\nConnection: close\r\n", "\r\nContent-Length: 8\r\n", "\r\nContent-Type: text/plain; charset=utf-8\r\n",
        "\r\nX-Content-Type-Options: nosniff\r\n", "\r\nX-Frame-Options: DENY\r\n", "\r\nCache-Control: no-store\r\n",
        "\r\nCross-Origin-Resource-Policy: same-origin\r\n",
        "\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"})
    EXPECT_NE(answer.find(field), std::string::npos) << field << answer;
  EXPECT_EQ(body_of(answer), "hello /x");
  EXPECT_EQ(answer.find("Access-Control"), std::string::npos);
  const std::string head = answer_to(server.port(), "HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(head.find("\r\nContent-Length: 8\r\n"), std::string::npos) << "as GET would have it";
  EXPECT_EQ(body_of(head), "");
  EXPECT_EQ(status_of_answer(head), 200);
  const std::string twice = answer_to(server.port(), get_request("a", "/1") + get_request("a", "/2"));
  EXPECT_EQ(body_of(twice), "hello /1") << "of requests that come together the first is answered";
}

TEST(HttpServer, AnAnswerWithoutABodySaysNoLength) {
  HttpServer server(0, [](const HttpRequest&, int) { return HttpAnswer{.status = 204}; });
  const std::string answer = get(server);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 204 No Content\r\n")) << answer;
  EXPECT_EQ(answer.find("Content-Length"), std::string::npos);
}

TEST(HttpServer, RefusalsNeverReachTheAnswer) {
  std::atomic<int> asked = 0;
  HttpServer server(0, [&](const HttpRequest& request, int port) {
    ++asked;
    return hello(request, port);
  });
  const std::string post = answer_to(server.port(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(post.starts_with("HTTP/1.1 405 ")) << post;
  EXPECT_NE(post.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(status_of_answer(answer_to(server.port(), get_request("a", "/", "Transfer-Encoding: chunked\r\n"))), 413);
  EXPECT_EQ(status_of_answer(answer_to(server.port(), "GET / HTTP/1.1\r\n\r\n")), 400);
  EXPECT_EQ(status_of_answer(answer_to(server.port(), "GET /" + std::string(100'000, 'x'))), 414);
  EXPECT_EQ(status_of_answer(answer_to(server.port(), get_request("a", "/", "A: " + std::string(100'000, 'x')))), 431);
  std::string fields;
  for (int f = 0; f < 10'000; ++f) fields += "A:b\r\n";
  EXPECT_EQ(status_of_answer(answer_to(server.port(), get_request("a", "/", fields))), 431);
  EXPECT_EQ(asked, 0);
}

TEST(HttpServer, ABodyIsDiscarded) {
  HttpServer server(0, hello);
  HttpClient client(server.port());
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
  const std::string chunk = "10000\r\n" + std::string(1 << 16, 'x') + "\r\n";
  std::size_t chunks = 0;
  while (chunks < 10'000 && client.send(chunk)) ++chunks;
  EXPECT_LT(chunks, 200u) << "no more than the kernel's buffers hold (some MiB), of 655 MB";
  EXPECT_EQ(status_of_answer(client.rest()), 405) << "and the client learns why";
}

TEST(HttpServer, WhoeverSendsSlowlyIsDropped) {
  HttpServer server(0, hello, kShort);
  std::vector<HttpClient> clients;
  for (int c = 0; c < 8; ++c) clients.emplace_back(server.port());
  const std::string request = get_request("a", "/");
  const auto begin = Clock::now();
  std::size_t sent = 0;
  for (; sent < request.size() && clients.back().send(request.substr(sent, 1)); ++sent) {
    for (HttpClient& client : clients)
      if (&client != &clients.back()) client.send(request.substr(sent, 1));
    EXPECT_LT(seconds_to_answer(server), kAtOnce) << "and nobody waits for them";
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_LT(sent, request.size());
  EXPECT_LT(seconds_since(begin), 4) << "after 1.5 s, though each byte came soon after the last";
  for (HttpClient& client : clients) EXPECT_TRUE(client.is_closed(1s));
}

/// Answers "/quick" with a text and all else with a body of its own, of so many bytes.
class Bodies {
 public:
  explicit Bodies(std::size_t bytes) : bytes_(bytes) {}
  HttpAnswer operator()(const HttpRequest& request, int port) {
    if (request.path == "/quick") return hello(request, port);
    const auto body = std::make_shared<const std::string>(bytes_, 'x');
    const std::lock_guard lock(guard_);
    made_.push_back(body);
    return {.body = body};
  }
  std::size_t made() const {
    const std::lock_guard lock(guard_);
    return made_.size();
  }
  std::size_t kept() const {
    const std::lock_guard lock(guard_);
    return static_cast<std::size_t>(
        std::count_if(made_.begin(), made_.end(), [](const auto& b) { return !b.expired(); }));
  }

 private:
  const std::size_t bytes_;
  mutable std::mutex guard_;
  std::deque<std::weak_ptr<const std::string>> made_;
};

TEST(HttpServer, WhoeverReadsSlowlyIsDropped) {
  Bodies bodies(8 << 20);
  HttpLimits limits = kShort;
  limits.answer_bytes = 1 << 30;
  HttpServer server(0, std::ref(bodies), limits);
  std::vector<HttpClient> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back(server.port(), 4096);
    clients.back().send(get_request("a", "/"));
  }
  const auto begin = Clock::now();
  while ((bodies.made() < 6 || bodies.kept() > 0) && seconds_since(begin) < 10) {
    for (HttpClient& client : clients) client.receive(1, 1ms);
    EXPECT_LT(seconds_to_answer(server), kAtOnce) << "and nobody waits for them";
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(bodies.kept(), 0u);
  EXPECT_LT(seconds_since(begin), 5);
}

TEST(HttpServer, WhoeverReadsSteadilyGetsAll) {
  Bodies bodies(4 << 20);
  HttpServer server(0, std::ref(bodies), kShort);
  HttpClient client(server.port(), 1 << 16);
  ASSERT_TRUE(client.send(get_request("a", "/")));
  const auto begin = Clock::now();
  std::string answer;
  for (std::string part; !(part = client.receive(1 << 15)).empty(); answer += part) std::this_thread::sleep_for(40ms);
  EXPECT_EQ(body_of(answer).size(), 4u << 20);
  EXPECT_GT(seconds_since(begin), 3) << "twice the time in which 64 KiB have to be taken";
}

TEST(HttpServer, BodiesOfManyReadersAreBounded) {
  constexpr std::size_t kBytes = 1 << 20;
  Bodies bodies(kBytes);
  HttpServer server(0, std::ref(bodies), {.answer_bytes = 3 * kBytes, .progress = 60s});
  std::vector<HttpClient> clients;
  for (std::size_t c = 0; c < 12; ++c) {
    clients.emplace_back(server.port(), 4096);
    clients.back().send(get_request("a", "/"));
    EXPECT_LT(seconds_to_answer(server), kAtOnce);
    EXPECT_LE(bodies.kept(), 3u);
  }
  EXPECT_EQ(bodies.made(), 12u);
  EXPECT_FALSE(clients.back().rest().empty()) << "the oldest are closed, not the newest";
}

TEST(HttpServer, SharedBodiesCountOnce) {
  const auto body = std::make_shared<const std::string>(1 << 20, 'x');
  HttpServer server(0, [&](const HttpRequest&, int) { return HttpAnswer{.body = body}; },
                    {.answer_bytes = 1 << 20, .progress = 60s});
  std::vector<HttpClient> clients;
  for (int c = 0; c < 5; ++c) {
    clients.emplace_back(server.port(), 4096);
    clients.back().send(get_request("a", "/"));
  }
  for (HttpClient& client : clients) EXPECT_EQ(body_of(client.rest()).size(), body->size());
}

TEST(HttpServer, TheOldestOfTooManyConnectionsAreClosed) {
  HttpServer server(0, hello);
  std::vector<HttpClient> clients;
  for (int c = 0; c < 200; ++c) {
    clients.emplace_back(server.port());
    ASSERT_TRUE(clients.back().connected());
    if (c % 20 == 0) {
      EXPECT_LT(seconds_to_answer(server), kAtOnce) << c;
    }
  }
  EXPECT_LT(seconds_to_answer(server), kAtOnce);
  EXPECT_TRUE(clients.front().is_closed(1s));
  EXPECT_FALSE(clients.back().is_closed(0ms));
  std::size_t open = 0;
  for (HttpClient& client : clients) open += client.is_closed(0ms) ? 0 : 1;
  EXPECT_LE(open, HttpLimits().connections);
}

TEST(HttpServer, ExceptionsAreAnswered) {
  HttpServer server(0, [](const HttpRequest& request, int) -> HttpAnswer {
    if (request.path == "/error") throw Error("a.json: a file is being written");
    if (request.path == "/memory") throw std::bad_alloc();
    throw std::runtime_error("[json.exception.101]");
  });
  const std::string error = get(server, "/error");
  EXPECT_EQ(status_of_answer(error), 503);
  EXPECT_EQ(body_of(error), "a.json: a file is being written");
  for (const char* path : {"/memory", "/"}) {
    EXPECT_EQ(status_of_answer(get(server, path)), 503);
    EXPECT_EQ(get(server, path).find("exception"), std::string::npos) << "no words of a library";
  }
}

TEST(HttpServer, EveryAllocationOfItsThreadMayFail) {
  HttpServer server(
      0, [](const HttpRequest& request, int) { return text_answer(200, std::string(100'000, 'x') + request.path); });
  long n = 0;
  for (bool failed = true; failed; ++n) {
    HttpClient client(server.port());
    allocations_left = n;
    client.send(get_request("a", "/a-path-that-is-not-short", "Origin: http://example.org\r\n"));
    const int status = status_of_answer(client.rest());
    EXPECT_TRUE(status == 200 || status == 503 || status == 0) << status;
    failed = allocations_left < 0;
    allocations_left = -1;
    ASSERT_EQ(body_of(get(server)).size(), 100'001u) << "the next client is served, after failure " << n;
  }
  EXPECT_GT(n, 5);
}

TEST(HttpServer, TheEndWaitsForNobody) {
  Bodies bodies(8 << 20);
  auto server = std::make_unique<HttpServer>(0, std::ref(bodies));
  HttpClient idle(server->port()), sends(server->port()), reads(server->port(), 4096), lingers(server->port());
  sends.send("GET / HT");
  reads.send(get_request("a", "/"));
  lingers.send("POST / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_FALSE(lingers.receive(10).empty());
  ASSERT_FALSE(reads.receive(10).empty());
  const int port = server->port();
  const auto begin = Clock::now();
  server.reset();
  EXPECT_LT(seconds_since(begin), 0.1);
  EXPECT_EQ(bodies.kept(), 0u);
  EXPECT_TRUE(idle.is_closed(1s));
  EXPECT_FALSE(HttpClient(port).connected());
  EXPECT_EQ(HttpServer(port, hello).port(), port) << "the port is free at once";
}

TEST(HttpServer, AServerThatIsNotUsedEndsAtOnce) {
  const auto begin = Clock::now();
  for (int s = 0; s < 20; ++s) HttpServer(0, hello);
  EXPECT_LT(seconds_since(begin), 1);
}

TEST(HttpServer, ClientsThatVanishDoNoHarm) {
  Bodies bodies(8 << 20);
  HttpServer server(0, std::ref(bodies));
  for (int c = 0; c < 50; ++c) {
    HttpClient client(server.port());
    if (c % 3 > 0) client.send(get_request("a", "/"));
    if (c % 3 > 1) client.receive(1 << 16);
    const linger at_once{.l_onoff = c % 2, .l_linger = 0};
    setsockopt(client.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  EXPECT_LT(seconds_to_answer(server), 1);
  HttpClient half(server.port());
  half.send(get_request("a", "/quick"));
  shutdown(half.descriptor(), SHUT_WR);
  EXPECT_EQ(status_of_answer(half.rest()), 200) << "a client that says that it has sent all";
}

/// Processor seconds of all threads.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(HttpServer, WithoutDescriptorsItWaits) {
  HttpServer server(0, hello);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  HttpClient client(server.port());
  ASSERT_TRUE(client.send("GET /")) << "accepted, or soon to be";
  ASSERT_LT(seconds_to_answer(server), 1);
  const int second = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(server.port()));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  ASSERT_EQ(connect(second, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const double before = processor_seconds();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(processor_seconds() - before, 0.3) << "it does not ask all the time";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const std::string request = get_request("a", "/");
  ASSERT_EQ(send(second, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  pollfd poll{second, POLLIN, 0};
  EXPECT_EQ(::poll(&poll, 1, 5000), 1) << "it is served when there are some again";
  close(second);
}

TEST(HttpServer, AnIdleServerTakesNoTime) {
  HttpServer server(0, hello);
  ASSERT_LT(seconds_to_answer(server), 1);
  std::this_thread::sleep_for(1100ms);  // the connection lingers no longer
  const double before = processor_seconds();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(processor_seconds() - before, 0.05);
}

TEST(HttpServer, ATakenPortIsAnErrorWithItsReason) {
  HttpServer first(0, hello);
  try {
    HttpServer second(first.port(), hello);
    FAIL() << "two servers at one port";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "port " + std::to_string(first.port()) +
                  " of 127.0.0.1 cannot be had (Address already in use); port 0 finds a free one");
  }
}

}  // namespace
}  // namespace bantam::cli::http_server_test
