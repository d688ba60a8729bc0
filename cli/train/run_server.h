// RunServer: the page of a run under way, for a browser on this machine (`train --serve`).
#pragma once

#include <filesystem>
#include <memory>

namespace bantam::cli {

/// Serves `/`, the page, and `/data.json?seen=VERSION`, its news, on 127.0.0.1 alone. A thread of its own reads the
/// run's files: it shares nothing with the training. No other file is served, whatever the path.
class RunServer {
 public:
  /// Port 0: a free one. Throws ConfigError where the port cannot be had.
  explicit RunServer(int port);
  /// Waits for no client, and for an answer under way only until the next line of the run's files.
  ~RunServer();
  RunServer(const RunServer&) = delete;
  RunServer& operator=(const RunServer&) = delete;

  int port() const;
  /// From now on the page is of the run in this folder; before it says that the run is starting.
  void follow(const std::filesystem::path& folder);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam::cli
