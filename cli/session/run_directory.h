// The folder of one run: config.yaml, metrics.jsonl, weights.safetensors, state.safetensors, algorithms.json. Never
// overwrites unasked.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "bantam/cli/session/run_lock.h"
#include "bantam/engine/train/trainer.h"

namespace bantam::cli {

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

/// Appends whole lines to metrics.jsonl with every event: one every `log_every` updates, and one an epoch. A file that
/// cannot be written does not end a run: `warn` is told once, the lines wait (at most kMostWaiting bytes of them), and
/// are written when there is room again.
class MetricsLog : public Callback {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

  /// The file is made with the first line. A half-written last line (of a run that was killed) is cut off. `warn` must
  /// not throw.
  MetricsLog(std::filesystem::path path, std::int64_t log_every, BfcAllocator& memory,
             std::function<void(std::string_view)> warn);
  ~MetricsLog() override;
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_end() override;

 private:
  void write(const nlohmann::ordered_json& line);
  void write_updates();
  void flush();
  int write_waiting();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string waiting_;       // whole lines, of which the first may be written in part
  std::int64_t dropped_ = 0;  // lines that waited in vain
  bool failing_ = false;
  std::int64_t log_every_;
  BfcAllocator& memory_;
  std::function<void(std::string_view)> warn_;
  std::int64_t epoch_ = 0, update_ = 0;  // the last seen
  // Sums of the updates since the last line.
  std::int64_t updates_ = 0, samples_ = 0;
  double loss_ = 0, correct_ = 0;
  std::vector<MetricValue> values_;
};

}  // namespace bantam::cli
