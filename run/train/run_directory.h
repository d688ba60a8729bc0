// The folder of one run: run.json, config.yaml, metrics.jsonl, checkpoints/, weights.safetensors at its end, and what
// `log` asks for. Never overwrites unasked.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "bantam/run/train/checkpoint_folder.h"
#include "bantam/run/train/run_lock.h"

namespace bantam::run {

/// Makes runs/<name>-<date-time>, with a number appended where two runs begin in one second. Throws DataError.
std::filesystem::path fresh_run_folder(const std::string& name);

/// Locked (RunLock) for as long as the object lives. Files that a killed process left half-written are removed when it
/// is made. At its end a folder that `create` made is removed if it is empty, so that a retry finds it free.
class RunDirectory {
 public:
  /// Makes `given`, or `runs/<name>-<date-time>` where it is empty. Throws ConfigError where another process uses the
  /// folder, or where it holds a run already, unless `overwrite`: that run stays until `clear`.
  static RunDirectory create(const std::filesystem::path& given, const std::string& name, bool overwrite);
  /// Throws ConfigError as `create` would, and makes nothing.
  static void require_free(const std::filesystem::path& given, bool overwrite);
  /// The folder of an earlier run, or one of its checkpoints, from which it shall go on. Throws DataError where there
  /// is no run, ConfigError where another process uses it.
  static RunDirectory open(const std::filesystem::path& path);
  /// Whether any file of a run is in the folder, also of one that was removed in part, or the folder is a checkpoint.
  /// Locks nothing. Throws DataError.
  static bool holds_run(const std::filesystem::path& path);
  ~RunDirectory();
  RunDirectory(RunDirectory&&) = default;
  RunDirectory& operator=(RunDirectory&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path record() const { return path_ / "run.json"; }
  std::filesystem::path config() const { return path_ / "config.yaml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path histograms() const { return path_ / "histograms.jsonl"; }
  /// For TensorBoard, which finds files by the word tfevents.
  std::filesystem::path events() const { return path_ / "tensorboard" / "train" / "events.out.tfevents.bantam"; }
  std::filesystem::path validation_events() const {
    return path_ / "tensorboard" / "validation" / "events.out.tfevents.bantam";
  }
  std::filesystem::path weights() const { return path_ / "weights.safetensors"; }
  std::filesystem::path best_weights() const { return path_ / "weights-best.safetensors"; }
  std::filesystem::path average_weights() const { return path_ / "weights-ema.safetensors"; }
  std::filesystem::path algorithms() const { return path_ / "algorithms.json"; }
  CheckpointFolder checkpoints() const { return CheckpointFolder(path_); }
  /// The one that was given to `open`; nothing: the newest counts.
  const std::optional<Checkpoint>& chosen() const { return chosen_; }

  /// Whether other processes are kept out: not on a file system without flock.
  bool is_guarded() const { return lock_->holds(); }
  /// Whether any file of a run is there, also of one that was removed in part. Throws DataError.
  bool has_files() const;
  /// Removes the files of the run that is replaced. Throws DataError.
  void clear() const;
  /// Removes config.yaml, run.json and tensorboard/ of a run that did not begin. Never fails.
  void abandon() const noexcept;

 private:
  RunDirectory(std::filesystem::path path, bool made);
  void remove_temporaries() const noexcept;

  std::filesystem::path path_;
  bool made_;  // by this program
  std::optional<Checkpoint> chosen_;
  std::unique_ptr<RunLock> lock_;
};

}  // namespace bantam::run
