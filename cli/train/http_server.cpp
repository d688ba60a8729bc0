// A poll() over the listener, an event that ends it, and connections in one of three states.
#include "bantam/cli/train/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "bantam/base/blocked_signals.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/sockets.h"

namespace bantam::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kAddress = "127.0.0.1";
constexpr std::size_t kChunkBytes = 64 << 10;     // sent at a time, and read by a client within `progress`
constexpr int kSendBufferBytes = 256 << 10;       // in the kernel, for each connection
constexpr std::size_t kMostDiscarded = 64 << 10;  // sent by a client after its request
constexpr std::size_t kAcceptedAtOnce = 8;        // so that each is served before it can be the oldest
constexpr std::chrono::milliseconds kPause{100};  // after a failed accept: there are no descriptors

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "";
  }
}

std::string head_of(const HttpAnswer& answer) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nConnection: close\r\n",
                                 answer.status, reason_of(answer.status), fmt::gmtime(std::time(nullptr)));
  if (answer.status != 204)
    head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", answer.type,
                        answer.body == nullptr ? 0 : answer.body->size());
  if (answer.status == 405) head += "Allow: GET, HEAD\r\n";
  head += fmt::format(
      "Accept-Ranges: none\r\nCache-Control: no-store\r\nContent-Security-Policy: {}\r\n"
      "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\r\n",
      answer.security_policy);
  return head;
}

struct Connection {
  enum class State { receives, sends, lingers };

  FileDescriptor socket;
  State state = State::receives;
  Clock::time_point begin, deadline;  // accepted; closed then
  std::string input = {};             // of the request
  std::string head = {};              // of the answer
  std::shared_ptr<const std::string> body = nullptr;
  std::size_t sent = 0, sent_in_time = 0;  // bytes of head and body; those before the present period of `progress`
  std::size_t discarded = 0;

  std::size_t to_send() const { return head.size() + (body == nullptr ? 0 : body->size()); }
  /// Closes it, and discards what the client has not read.
  void abort() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket.reset();
  }
};

}  // namespace

HttpAnswer text_answer(int status, std::string text) {
  return {.status = status, .body = std::make_shared<const std::string>(std::move(text))};
}

class HttpServer::Impl {
 public:
  Impl(int port, Answer answer, HttpLimits limits) : answer_(std::move(answer)), limits_(limits) {
    SocketAddress address;
    auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, kAddress, &four.sin_addr);
    address.bytes = sizeof(sockaddr_in);
    std::string why;
    listener_ = listen_at(address, why);
    if (!listener_)
      throw Error(fmt::format("port {} of {} cannot be had ({}); port 0 finds a free one", port, kAddress, why));
    // The connections inherit it.
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
    port_ = own_address(listener_).port();
    connections_.reserve(limits_.connections + 1);  // neither grows later
    polls_.reserve(limits_.connections + 2);
    const BlockedSignals blocked;  // they are for the thread that trains
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
      throw Error(fmt::format("no thread can be started: {}", error.code().message()));
    }
  }
  ~Impl() {
    ends_ = true;
    wake_.signal();
    thread_.join();
  }

  int port() const { return port_; }

 private:
  void serve() noexcept {
    while (!ends_) {
      const Clock::time_point before = Clock::now();
      wait(before);
      if (ends_) break;
      now_ = Clock::now();
      for (std::size_t c = 0; c < connections_.size() && !ends_; ++c) step(connections_[c], polls_[c + 2].revents);
      std::erase_if(connections_, [](const Connection& connection) { return !connection.socket; });
      if (polls_[1].revents != 0) accept_new();
    }
    connections_.clear();
    listener_.reset();
  }

  /// Blocks until a descriptor is ready or a deadline passes.
  void wait(Clock::time_point now) {
    const bool accepts = now >= accepts_after_;
    Clock::time_point until = accepts ? Clock::time_point::max() : accepts_after_;
    polls_.clear();
    polls_.push_back({wake_.fd(), POLLIN, 0});
    polls_.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
    for (const Connection& connection : connections_) {
      polls_.push_back({connection.socket.get(),
                        static_cast<short>(connection.state == Connection::State::sends ? POLLOUT : POLLIN), 0});
      until = std::min(until, connection.deadline);
    }
    int milliseconds = -1;
    if (until != Clock::time_point::max())
      milliseconds = static_cast<int>(
          std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(until - now).count(), 0));
    if (::poll(polls_.data(), polls_.size(), milliseconds) < 0)  // the kernel has no memory; signals are blocked
      std::this_thread::sleep_for(kPause);
  }

  void accept_new() {
    for (std::size_t i = 0; i < kAcceptedAtOnce; ++i) {
      FileDescriptor socket = accept_from(listener_);
      if (!socket) {
        const bool fails = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
        if (fails) accepts_after_ = now_ + kPause;
        return;
      }
      if (connections_.size() >= limits_.connections) close_oldest();
      connections_.push_back({.socket = std::move(socket), .begin = now_, .deadline = now_ + limits_.request});
    }
  }

  void close_oldest() {
    connections_.front().abort();  // in the order in which they came
    connections_.erase(connections_.begin());
  }

  /// Does what the connection is ready for. An exception closes it.
  void step(Connection& connection, short events) noexcept {
    try {
      if (!connection.socket) return;  // closed for another's answer
      if (events != 0) {
        if (connection.state == Connection::State::receives) receive(connection);
        if (connection.state == Connection::State::sends) send(connection);
        if (connection.state == Connection::State::lingers) discard(connection);
      }
      if (connection.socket && now_ >= connection.deadline) expire(connection);
    } catch (...) {  // there is no memory
      connection.abort();
    }
  }

  void expire(Connection& connection) {
    if (connection.state == Connection::State::lingers) return connection.socket.reset();
    if (connection.state == Connection::State::receives || connection.sent < connection.sent_in_time + kChunkBytes)
      return connection.abort();
    connection.sent_in_time = connection.sent;
    connection.deadline = now_ + limits_.progress;
  }

  void receive(Connection& connection) {
    std::array<char, 4096> part;
    const ssize_t count = ::recv(connection.socket.get(), part.data(), part.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return connection.socket.reset();
    connection.input.append(part.data(), static_cast<std::size_t>(count));
    const ParsedHttpRequest parsed = parse_http_request(connection.input);
    if (parsed.status == 0) return;
    std::string().swap(connection.input);
    HttpAnswer answer = parsed.status == 200 ? answer_or_failure(parsed.request) : text_answer(parsed.status, "");
    connection.head = head_of(answer);
    if (!parsed.request.head && answer.status != 204) connection.body = std::move(answer.body);
    connection.state = Connection::State::sends;
    connection.deadline = Clock::now() + limits_.progress;
    keep_within_memory(connection);
  }

  HttpAnswer answer_or_failure(const HttpRequest& request) {
    try {
      return answer_(request, port_);
    } catch (const Error& failure) {
      return text_answer(503, failure.what());
    } catch (const std::exception&) {
      return text_answer(503, "There is too little memory for an answer; ask again later.");
    }
  }

  /// The bytes of all different bodies that are being sent.
  std::size_t bytes_of_bodies() const {
    std::size_t bytes = 0;
    for (std::size_t c = 0; c < connections_.size(); ++c) {
      const auto has_same = [&](const Connection& other) { return other.body == connections_[c].body; };
      const auto end = connections_.begin() + static_cast<std::ptrdiff_t>(c);
      if (connections_[c].body != nullptr && std::none_of(connections_.begin(), end, has_same))
        bytes += connections_[c].body->size();
    }
    return bytes;
  }
  void keep_within_memory(const Connection& newest) {
    for (Connection& connection : connections_) {
      if (bytes_of_bodies() <= limits_.answer_bytes) return;
      if (&connection == &newest || connection.body == nullptr) continue;
      connection.abort();
      connection.body.reset();
    }
  }

  void send(Connection& connection) {
    const bool in_head = connection.sent < connection.head.size();
    const std::string& text = in_head ? connection.head : *connection.body;
    const std::size_t at = connection.sent - (in_head ? 0 : connection.head.size());
    const ssize_t count = ::send(connection.socket.get(), text.data() + at, std::min(text.size() - at, kChunkBytes),
                                 MSG_NOSIGNAL | (in_head && connection.body != nullptr ? MSG_MORE : 0));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return connection.socket.reset();
    connection.sent += static_cast<std::size_t>(count);
    if (connection.sent < connection.to_send()) return;
    connection.body.reset();
    // Closing a socket before its input is read would discard the answer that the client has not received yet.
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.state = Connection::State::lingers;
    connection.deadline = Clock::now() + limits_.linger;
  }

  void discard(Connection& connection) {
    std::array<char, 4096> part;
    const ssize_t count = ::recv(connection.socket.get(), part.data(), part.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    connection.discarded += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    if (count <= 0 || connection.discarded > kMostDiscarded) connection.socket.reset();
  }

  const Answer answer_;
  const HttpLimits limits_;
  FileDescriptor listener_;
  int port_ = 0;
  WakeEvent wake_;
  std::atomic<bool> ends_ = false;
  // Used by the thread alone.
  std::vector<Connection> connections_;  // the oldest first
  std::vector<pollfd> polls_;            // the event, the listener, then the connections
  Clock::time_point now_, accepts_after_;
  std::thread thread_;
};

HttpServer::HttpServer(int port, Answer answer, HttpLimits limits)
    : impl_(std::make_unique<Impl>(port, std::move(answer), limits)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }

}  // namespace bantam::cli
