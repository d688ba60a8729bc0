// The system's calls for sockets. No descriptor is inherited by programs that this one starts; no write raises SIGPIPE.
#include "bantam/engine/comm/sockets.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"

namespace bantam {
namespace {

sockaddr* as_sockaddr(SocketAddress& address) { return reinterpret_cast<sockaddr*>(&address.storage); }
const sockaddr* as_sockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}
const sockaddr_in& ipv4(const SocketAddress& address) { return reinterpret_cast<const sockaddr_in&>(address.storage); }
const sockaddr_in6& ipv6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

void set_option(const FileDescriptor& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof(value));
}

/// Waits until the connection stands or has failed: its errno, 0 where it stands.
int connection_error(const FileDescriptor& socket, double seconds, const std::function<bool()>& stop) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const double left = seconds - seconds_since(start);
    if (left <= 0 || (stop && stop())) return ETIMEDOUT;
    pollfd poll{socket.get(), POLLOUT, 0};
    if (::poll(&poll, 1, static_cast<int>(std::min(left, 0.1) * 1000) + 1) > 0) break;
  }
  int error = 0;
  socklen_t bytes = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

}  // namespace

int SocketAddress::port() const { return ntohs(family() == AF_INET6 ? ipv6(*this).sin6_port : ipv4(*this).sin_port); }

std::string SocketAddress::number() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &ipv4(*this).sin_addr, text, sizeof(text));
    return text;
  }
  const in6_addr& number = ipv6(*this).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&number)) {
    ::inet_ntop(AF_INET, number.s6_addr + 12, text, sizeof(text));
    return text;
  }
  // With the interface of a link-local number, which means nothing without it.
  if (::getnameinfo(as_sockaddr(*this), bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    ::inet_ntop(AF_INET6, &number, text, sizeof(text));
  return text;
}

bool SocketAddress::is_loopback() const {
  const std::string text = number();
  return text == "::1" || text.starts_with("127.");
}

std::vector<SocketAddress> resolve(const Endpoint& endpoint, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    why = error == EAI_SYSTEM ? reason_text(errno) : ::gai_strerror(error);
    return {};
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.bytes = at->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

SocketAddress own_address(const FileDescriptor& socket) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  ::getsockname(socket.get(), as_sockaddr(address), &address.bytes);
  return address;
}

SocketAddress peer_address(const FileDescriptor& socket) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  ::getpeername(socket.get(), as_sockaddr(address), &address.bytes);
  return address;
}

FileDescriptor listen_at(const SocketAddress& address, std::string& why) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket) {
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.family() == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(socket.get(), as_sockaddr(address), address.bytes) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
  }
  why = reason_text(errno);
  return FileDescriptor();
}

FileDescriptor listen_anywhere(int port, std::string& why) {
  SocketAddress any;
  auto& six = reinterpret_cast<sockaddr_in6&>(any.storage);
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  any.bytes = sizeof(sockaddr_in6);
  if (FileDescriptor socket = listen_at(any, why)) return socket;
  any = {};
  auto& four = reinterpret_cast<sockaddr_in&>(any.storage);
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  any.bytes = sizeof(sockaddr_in);
  return listen_at(any, why);
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

FileDescriptor connect_to(const SocketAddress& address, double seconds, const std::function<bool()>& stop,
                          std::string& why) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int error = errno;
  if (socket) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    error = ::connect(socket.get(), as_sockaddr(address), address.bytes) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = connection_error(socket, seconds, stop);
    // A port that nobody listens at may be lent to this very socket, which is then connected to itself.
    if (error == 0 && own_address(socket).text() == peer_address(socket).text()) error = ECONNREFUSED;
    if (error == 0) return socket;
  }
  why = reason_text(error);
  return FileDescriptor();
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof(name) - 1) != 0) return "";
  return name;
}

WakeEvent::WakeEvent() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_) throw Error(fmt::format("cannot make an event to wait for: {}", reason_text(errno)));
}

void WakeEvent::signal() noexcept {
  const std::uint64_t one = 1;
  // It fails only where the count is at its end, and then the descriptor is readable.
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof(one));
}

void WakeEvent::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(event_.get(), &count, sizeof(count));
}

}  // namespace bantam
