// Clients of a server on this machine, as slow, rude or wrong as a test wants them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bantam::cli {

/// One connection, closed at its end.
class HttpClient {
 public:
  explicit HttpClient(int port, int receive_buffer_bytes = 0)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer_bytes > 0)
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() {
    if (socket_ >= 0) close(socket_);
  }
  HttpClient(HttpClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(std::exchange(other.connected_, false)) {}
  HttpClient& operator=(HttpClient&&) = delete;

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }
  /// False where the other side has closed the connection.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// At most `most` bytes that come within `wait`; empty: none, or the connection was closed.
  std::string receive(std::size_t most, std::chrono::milliseconds wait = std::chrono::seconds(20)) {
    pollfd poll{socket_, POLLIN, 0};
    if (::poll(&poll, 1, static_cast<int>(wait.count())) <= 0) return "";
    std::string part(most, '\0');
    const ssize_t count = recv(socket_, part.data(), part.size(), 0);
    part.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return part;
  }
  /// All that comes until the connection is closed.
  std::string rest() {
    std::string all;
    for (std::string part; !(part = receive(1 << 16)).empty();) all += part;
    return all;
  }
  /// Whether the other side closes it within `wait`.
  bool is_closed(std::chrono::milliseconds wait) {
    pollfd poll{socket_, POLLIN, 0};
    if (::poll(&poll, 1, static_cast<int>(wait.count())) <= 0) return false;
    char byte = 0;
    return recv(socket_, &byte, 1, MSG_PEEK) <= 0;
  }

 private:
  int socket_;
  bool connected_ = false;
};

inline std::string own_host(int port) { return "127.0.0.1:" + std::to_string(port); }

/// A GET with further fields ("Origin: null\r\n").
inline std::string get_request(const std::string& host, const std::string& path, const std::string& fields = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + fields + "\r\n";
}

/// Returns the answer to a whole request; empty: it cannot be reached, or closes the connection.
inline std::string answer_to(int port, const std::string& request) {
  HttpClient client(port);
  if (!client.connected()) return "";
  client.send(request);
  return client.rest();
}

inline int status_of_answer(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}
inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace bantam::cli
