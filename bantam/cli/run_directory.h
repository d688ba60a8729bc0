// The folder of one run: config.yaml, metrics.jsonl, weights.safetensors, state.safetensors, algorithms.json. Never
// overwrites unasked.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "bantam/engine/trainer.h"

namespace bantam::cli {

class RunDirectory {
 public:
  /// Makes `given`, or `runs/<name>-<date-time>` where it is empty. Throws ConfigError where the folder holds a run
  /// already, unless `overwrite`: then that run's files are removed.
  static RunDirectory create(const std::filesystem::path& given, const std::string& name, bool overwrite);
  /// Throws ConfigError as `create` would, and makes nothing.
  static void require_free(const std::filesystem::path& given, bool overwrite);
  /// The folder of an earlier run. Throws DataError where there is no saved state.
  static RunDirectory open(const std::filesystem::path& path);

  /// Of a run that failed: where it has logged no update, its files are removed, and the folder where `create` made it,
  /// so that a retry finds it free. Never throws.
  void discard_if_empty() const noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.yaml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path weights() const { return path_ / "weights.safetensors"; }
  std::filesystem::path state() const { return path_ / "state.safetensors"; }
  std::filesystem::path algorithms() const { return path_ / "algorithms.json"; }

 private:
  RunDirectory(std::filesystem::path path, bool made) : path_(std::move(path)), made_(made) {}
  std::filesystem::path path_;
  bool made_;  // by this program
};

/// Appends to metrics.jsonl, flushed with every event: one every `log_every` updates, and one an epoch.
class MetricsLog : public Callback {
 public:
  /// Throws DataError where the file cannot be opened. A half-written last line (of a run that was killed) is cut off.
  MetricsLog(const std::filesystem::path& path, std::int64_t log_every, BfcAllocator& memory);
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_end() override;

 private:
  void write(const nlohmann::ordered_json& line);
  void write_updates();
  void flush();

  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t log_every_;
  BfcAllocator& memory_;
  std::int64_t epoch_ = 0, update_ = 0;  // the last seen
  // Sums of the updates since the last line.
  std::int64_t updates_ = 0, samples_ = 0;
  double loss_ = 0, correct_ = 0;
};

}  // namespace bantam::cli
