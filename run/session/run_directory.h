// The folder of one run: config.yaml, metrics.jsonl, weights.safetensors, state.safetensors, algorithms.json. Never
// overwrites unasked.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "bantam/run/session/run_lock.h"

namespace bantam::run {

/// Locked (RunLock) for as long as the object lives. At its end a folder that `create` made is removed if it is empty,
/// so that a retry finds it free; nothing else is ever removed.
class RunDirectory {
 public:
  /// Makes `given`, or `runs/<name>-<date-time>` where it is empty. Throws ConfigError where another process uses the
  /// folder, or where it holds a run already, unless `overwrite`: then that run's files are removed.
  static RunDirectory create(const std::filesystem::path& given, const std::string& name, bool overwrite);
  /// Throws ConfigError as `create` would, and makes nothing.
  static void require_free(const std::filesystem::path& given, bool overwrite);
  /// The folder of an earlier run. Throws DataError where there is no saved state, ConfigError where another process
  /// uses it.
  static RunDirectory open(const std::filesystem::path& path);
  ~RunDirectory();
  RunDirectory(RunDirectory&&) = default;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.yaml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path weights() const { return path_ / "weights.safetensors"; }
  std::filesystem::path state() const { return path_ / "state.safetensors"; }
  std::filesystem::path algorithms() const { return path_ / "algorithms.json"; }

 private:
  RunDirectory(std::filesystem::path path, bool made);
  std::filesystem::path path_;
  bool made_;  // by this program
  std::unique_ptr<RunLock> lock_;
};

}  // namespace bantam::run
