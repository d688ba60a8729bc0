// RunServer: the page of a run under way, for a browser on this machine (`train --serve`).
#pragma once

#include <filesystem>
#include <memory>

namespace bantam::cli {

/// Answers on 127.0.0.1 alone, by threads of its own that read the run's files: it shares nothing with the training.
class RunServer {
 public:
  /// Port 0: a free one. Throws ConfigError where the port cannot be had, and where this program was built without its
  /// HTTP library (cpp-httplib).
  explicit RunServer(int port);
  /// Waits for answers under way.
  ~RunServer();
  RunServer(const RunServer&) = delete;
  RunServer& operator=(const RunServer&) = delete;

  int port() const;
  /// From now on the page is of the run in this folder; before it says that the run is starting.
  void follow(const std::filesystem::path& folder);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam::cli
