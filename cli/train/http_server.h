// HttpServer: answers to GET and HEAD on 127.0.0.1, for a browser on this machine (HTTP/1.1, one request a connection).
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace bantam::cli {

struct HttpRequest {
  std::string path;   ///< "/data.json"
  std::string query;  ///< what follows "?", as it was sent
  std::string host;   ///< the header Host
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain";
  std::string body;
};

/// One thread, begun by the constructor, reads requests, calls the handler and sends what it returns.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  static constexpr const char* kAddress = "127.0.0.1";

  /// Port 0: a free one. Throws ConfigError where the port cannot be had. What the handler throws is answered with 500.
  HttpServer(int port, Handler handler);
  /// Sends the answers under way, for a second at most.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam::cli
