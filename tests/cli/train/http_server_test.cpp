// HttpServer: what is answered to requests whole, in parts, wrong, and to browsers that say nothing.
#include "bantam/cli/train/http_server.h"

#include <array>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam::cli {
namespace {

class Browser {
 public:
  explicit Browser(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Browser() { ::close(socket_); }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  bool connected() const { return connected_; }
  void send(const std::string& text) { (void)::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  /// All that comes until the server closes.
  std::string rest() {
    std::string text;
    std::array<char, 65536> part;
    for (ssize_t count = 0; (count = ::recv(socket_, part.data(), part.size(), 0)) > 0;)
      text.append(part.data(), static_cast<std::size_t>(count));
    return text;
  }

 private:
  int socket_;
  bool connected_ = false;
};

std::string asked(int port, const std::string& request) {
  Browser browser(port);
  browser.send(request);
  return browser.rest();
}

HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/throws") throw std::runtime_error("no luck");
  if (request.path == "/nothing") return {.status = 204};
  if (request.path == "/large") return {.body = std::string(std::size_t{20} << 20, 'x')};
  return {.type = "text/html", .body = fmt::format("{}|{}|{}", request.path, request.query, request.host)};
}

TEST(HttpServer, AnswersGetAndHead) {
  const HttpServer server(0, echo);
  EXPECT_EQ(asked(server.port(), "GET /a?seen=1.-2 HTTP/1.1\r\nAccept: x\r\nhOST: \t here:80 \r\n\r\n"),
            "HTTP/1.1 200 OK\r\nConnection: close\r\nCache-Control: no-store\r\nContent-Type: text/html\r\n"
            "Content-Length: 20\r\n\r\n/a|seen=1.-2|here:80");
  EXPECT_EQ(asked(server.port(), "HEAD / HTTP/1.0\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nConnection: close\r\nCache-Control: no-store\r\nContent-Type: text/html\r\n"
            "Content-Length: 3\r\n\r\n");
  EXPECT_EQ(asked(server.port(), "GET /nothing HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 204 No Content\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n");
}

TEST(HttpServer, SaysWhatItExpected) {
  const HttpServer server(0, echo);
  EXPECT_TRUE(asked(server.port(), "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  for (const char* wrong : {"GET /\r\n\r\n", "\r\n\r\n", "GET / SMTP\r\n\r\n", "GET\r\nHTTP/1.1 / x\r\n\r\n"})
    EXPECT_TRUE(asked(server.port(), wrong).starts_with("HTTP/1.1 400 Bad Request\r\n")) << wrong;
  EXPECT_TRUE(
      asked(server.port(), std::string(20000, 'a')).starts_with("HTTP/1.1 431 Request Header Fields Too Large"));
  const std::string failed = asked(server.port(), "GET /throws HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(failed.starts_with("HTTP/1.1 500 Internal Server Error\r\n")) << failed;
  EXPECT_TRUE(failed.ends_with("\r\n\r\nno luck")) << failed;
}

TEST(HttpServer, ABrowserThatSaysNothingHoldsNobodyUp) {
  const HttpServer server(0, echo);
  const Browser silent(server.port());
  Browser slow(server.port());
  slow.send("GET /slow HT");
  EXPECT_TRUE(asked(server.port(), "GET /quick HTTP/1.1\r\n\r\n").ends_with("/quick||"));
  slow.send("TP/1.1\r\nHost: s\r\n");
  EXPECT_TRUE(asked(server.port(), "GET /quick HTTP/1.1\r\n\r\n").ends_with("/quick||"));
  slow.send("\r\n");
  EXPECT_TRUE(slow.rest().ends_with("/slow||s"));
}

TEST(HttpServer, SendsMoreThanASocketHolds) {
  const HttpServer server(0, echo);
  Browser large(server.port());
  large.send("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(asked(server.port(), "GET / HTTP/1.1\r\n\r\n").ends_with("/||")) << "while the other does not read";
  const std::string text = large.rest();
  EXPECT_EQ(text.size() - text.find("\r\n\r\n") - 4, std::size_t{20} << 20);
}

TEST(HttpServer, EndsWithConnectionsOpen) {
  auto server = std::make_unique<HttpServer>(0, echo);
  const int port = server->port();
  Browser silent(port), large(port);
  large.send("GET /large HTTP/1.1\r\n\r\n");
  std::string text;
  std::thread reader([&] { text = large.rest(); });
  EXPECT_TRUE(asked(port, "GET / HTTP/1.1\r\n\r\n").ends_with("/||")) << "the request before has been read, too";
  server.reset();
  reader.join();
  EXPECT_EQ(text.size() - text.find("\r\n\r\n") - 4, std::size_t{20} << 20) << "an answer under way is sent";
  EXPECT_EQ(silent.rest(), "");
  EXPECT_FALSE(Browser(port).connected());
}

TEST(HttpServer, APortThatIsTakenIsNamed) {
  const HttpServer server(0, echo);
  const std::string expected = fmt::format(
      "--serve: port {} of 127.0.0.1 cannot be had: another program uses it, or it is reserved", server.port());
  try {
    const HttpServer second(server.port(), echo);
    ADD_FAILURE() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), expected);
  }
}

}  // namespace
}  // namespace bantam::cli
