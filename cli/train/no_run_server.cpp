// `train --serve` of a program that was built without an HTTP library.
#include "bantam/base/error.h"
#include "bantam/cli/train/run_server.h"

namespace bantam::cli {

struct RunServer::Impl {};

RunServer::RunServer(int) {
  throw ConfigError(
      "--serve: this program was built without cpp-httplib (Debian: libcpp-httplib-dev); `bantam report RUN --watch` "
      "writes the same page to a file");
}
RunServer::~RunServer() = default;
int RunServer::port() const { return 0; }
void RunServer::follow(const std::filesystem::path&) {}

}  // namespace bantam::cli
