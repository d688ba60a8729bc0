// Sockets that do not block, and one poll() over all of them: a browser that connects and says nothing holds nobody up.
#include "bantam/cli/train/http_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostConnections = 64;
constexpr std::size_t kMostRequestBytes = std::size_t{1} << 14;
constexpr std::chrono::seconds kPatience{10};  // with a browser that neither sends nor reads
constexpr std::chrono::seconds kEndPatience{1};
constexpr std::string_view kEndOfHead = "\r\n\r\n";

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }

 private:
  int number_;
};

/// Signals are for the thread that trains.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

/// A socket that listens on `port` (0: a free one, written to it) of this machine alone.
Descriptor listen_on(int& port) {
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  ::setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  if (listener.number() < 0 || ::bind(listener.number(), at, size) != 0 || ::listen(listener.number(), 16) != 0 ||
      ::getsockname(listener.number(), at, &size) != 0)
    throw ConfigError(fmt::format("--serve: port {} of {} cannot be had: another program uses it, or it is reserved",
                                  port, HttpServer::kAddress));
  port = ntohs(address.sin_port);
  return listener;
}

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
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string text_of(const HttpResponse& response, bool with_body) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nConnection: close\r\nCache-Control: no-store\r\n", response.status,
                                 reason_of(response.status));
  if (response.status == 405) text += "Allow: GET, HEAD\r\n";
  if (response.status != 204)
    text += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", response.type, response.body.size());
  text += "\r\n";
  if (with_body && response.status != 204) text += response.body;
  return text;
}

bool is_same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

/// The value of a header in the lines after the first; "" where there is none.
std::string header_of(std::string_view head, std::string_view name) {
  for (std::size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at)) {
    at += 2;
    const std::string_view line = head.substr(at, head.find("\r\n", at) - at);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_same_name(line.substr(0, colon), name)) continue;
    const std::size_t begin = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
    return std::string(line.substr(begin, line.find_last_not_of(" \t") + 1 - begin));
  }
  return "";
}

/// What is sent for a request whose head has come whole.
std::string answer(std::string_view head, const HttpServer::Handler& handler) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == last || !line.substr(last + 1).starts_with("HTTP/1."))
    return text_of({.status = 400, .body = "expected a request of HTTP/1.1\n"}, true);
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1);
  if (method != "GET" && method != "HEAD") return text_of({.status = 405, .body = "expected GET\n"}, true);
  const std::size_t mark = std::min(target.find('?'), target.size());
  const HttpRequest request{std::string(target.substr(0, mark)),
                            std::string(target.substr(std::min(mark + 1, target.size()))), header_of(head, "Host")};
  HttpResponse response;
  try {
    response = handler(request);
  } catch (const std::exception& error) {
    response = {.status = 500, .body = error.what()};
  }
  return text_of(response, method == "GET");
}

/// One browser's: reads a request, sends the answer, then waits for the browser to close, which shows that it has it
/// all.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  pollfd waits_for() const { return {socket_.number(), static_cast<short>(is_sending() ? POLLOUT : POLLIN), 0}; }
  bool is_sending() const { return sent_ < out_.size(); }
  Clock::time_point deadline() const { return deadline_; }

  /// Goes on as far as the socket lets it. False: it is over.
  bool go_on(const HttpServer::Handler& handler) {
    deadline_ = Clock::now() + kPatience;
    return is_sending() ? send_more() : receive(handler);
  }

 private:
  static bool is_later() { return errno == EAGAIN || errno == EINTR; }

  bool receive(const HttpServer::Handler& handler) {
    std::array<char, 4096> part;
    const ssize_t count = ::recv(socket_.number(), part.data(), part.size(), 0);
    if (count <= 0) return count < 0 && is_later();
    if (!out_.empty()) return true;  // after the answer: what comes then is ignored
    in_.append(part.data(), static_cast<std::size_t>(count));
    const std::size_t end = in_.find(kEndOfHead);
    if (end != std::string::npos) {
      out_ = answer(std::string_view(in_).substr(0, end + 2), handler);
    } else if (in_.size() > kMostRequestBytes) {
      out_ = text_of({.status = 431, .body = fmt::format("expected at most {} bytes\n", kMostRequestBytes)}, true);
    }
    return out_.empty() || send_more();
  }
  bool send_more() {
    const ssize_t count = ::send(socket_.number(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0) return is_later();
    sent_ += static_cast<std::size_t>(count);
    if (!is_sending()) ::shutdown(socket_.number(), SHUT_WR);
    return true;
  }

  Descriptor socket_;
  std::string in_, out_;
  std::size_t sent_ = 0;
  Clock::time_point deadline_ = Clock::now() + kPatience;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(int port, Handler handler) : port_(port), handler_(std::move(handler)), listener_(listen_on(port_)) {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { serve(); });
  }
  ~Impl() {
    ::eventfd_write(end_.number(), 1);
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  int port() const { return port_; }

 private:
  void serve() {
    while (!poll_once(std::chrono::seconds(1))) continue;
    is_ending_ = true;
    listener_ = Descriptor(-1);
    const Clock::time_point end = Clock::now() + kEndPatience;
    const auto is_done = [](const Connection& connection) { return !connection.is_sending(); };
    std::erase_if(connections_, is_done);
    while (!connections_.empty() && Clock::now() < end) {
      poll_once(std::chrono::milliseconds(50));
      std::erase_if(connections_, is_done);
    }
  }

  /// Waits, then does what can be done without waiting. True: the server is to end.
  bool poll_once(std::chrono::milliseconds longest) {
    std::vector<pollfd> polled{{is_ending_ ? -1 : end_.number(), POLLIN, 0}, {-1, POLLIN, 0}};
    if (connections_.size() < kMostConnections) polled[1].fd = listener_.number();
    for (const Connection& connection : connections_) polled.push_back(connection.waits_for());
    const int count = ::poll(polled.data(), polled.size(), static_cast<int>(longest.count()));
    const Clock::time_point now = Clock::now();
    std::vector<Connection> kept;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const bool ready = count > 0 && polled[i + 2].revents != 0;
      if (ready ? connections_[i].go_on(handler_) : now < connections_[i].deadline())
        kept.push_back(std::move(connections_[i]));
    }
    connections_ = std::move(kept);
    if (count > 0 && polled[1].revents != 0) accept_one();
    return count > 0 && polled[0].revents != 0;
  }

  void accept_one() {
    Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.number() >= 0) {
      connections_.emplace_back(std::move(socket));
    } else if (errno != EAGAIN && errno != EINTR) {  // out of descriptors, say: the browser waits, and so does this
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  int port_;
  Handler handler_;
  Descriptor listener_;
  Descriptor end_{::eventfd(0, EFD_CLOEXEC)};
  std::vector<Connection> connections_;
  bool is_ending_ = false;
  std::thread thread_;
};

HttpServer::HttpServer(int port, Handler handler) : impl_(std::make_unique<Impl>(port, std::move(handler))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }

}  // namespace bantam::cli
