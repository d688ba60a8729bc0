// HttpServer: answers to GET and HEAD on 127.0.0.1, by one thread that no client can delay, fill or end.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "bantam/cli/train/http_request.h"

namespace bantam::cli {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body = {};  ///< null: none. Several answers may share one.
  std::string security_policy = "default-src 'none'; frame-ancestors 'none'";  ///< Content-Security-Policy
};

/// An answer with a text of its own.
HttpAnswer text_answer(int status, std::string text);

/// Limits on what clients use. The connections of a server use at most 32 KiB each and `answer_bytes` together, beside
/// the answer that is being built, and in the kernel about 300 KiB for each client that does not read.
struct HttpLimits {
  std::size_t connections = 32;             ///< one more closes the oldest
  std::size_t answer_bytes = 16 << 20;      ///< all different bodies that are being sent; more close the oldest ones
  std::chrono::milliseconds request{5000};  ///< from the connection to the complete request; then it is closed
  /// Within each such time a client reads 64 KiB of its answer or all that is left; otherwise it is closed.
  std::chrono::milliseconds progress{5000};
  std::chrono::milliseconds linger{1000};  ///< from the end of the answer until the client closes; then it is closed
};

/// A connection has one request and is closed after its answer (`Connection: close`); what a client sends after its
/// request is discarded. Range is ignored, as RFC 9110 (section 14.2) allows: every answer is whole.
///
/// Thread contract: `answer` is called by the server's thread alone, one call at a time. An exception of it becomes an
/// answer 503; where there is no memory for that either, the connection is closed. No exception gets out of the thread.
class HttpServer {
 public:
  using Answer = std::function<HttpAnswer(const HttpRequest&, int port)>;  ///< `port` is the server's

  /// Port 0: a free one. Throws Error with the reason where the port cannot be had, or no thread.
  HttpServer(int port, Answer answer, HttpLimits limits = {});
  /// Closes all connections at once, whatever their state; waits for `answer` where it is running.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam::cli
