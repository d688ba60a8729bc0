// Where a program's algorithm choices come from and go to: the user's cache, and the run's own folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "bantam/cli/run_config.h"
#include "bantam/engine/algorithm_file.h"
#include "bantam/kernels/algorithm_choices.h"

namespace bantam::cli {

/// The file that `algorithms` of a configuration means for a device: none for "off"; for "auto" what the environment
/// says in BANTAM_ALGORITHM_CACHE (a path, or "off"), else $XDG_CACHE_HOME/bantam (or
/// ~/.cache/bantam)/algorithms-<device>.json; else the path itself.
std::optional<std::filesystem::path> algorithm_cache_path(const std::string& algorithms, const std::string& device);

/// Choices of one runtime's CUDA device: read when made and, where the device has no limit, timed from then on. On
/// other devices, and where `algorithms` is off, this does nothing.
class AlgorithmCache {
 public:
  /// `run_file`: choices of the run that is resumed, which come before the cache's; empty: there are none. Files that
  /// are missing, damaged or another device's are passed over, the last two with a line in the runtime's log.
  AlgorithmCache(Runtime& runtime, const RunConfig& config, const std::filesystem::path& run_file = {});

  /// Adds what is new to the cache's file. A cache that cannot be written is only logged.
  void save();
  /// Writes the runtime's choices beside a run's state. Throws DataError.
  void save_with_run(const std::filesystem::path& run_file) const;

 private:
  AlgorithmMap read(const std::filesystem::path& path) const;

  Runtime& runtime_;
  kernels::AlgorithmChoices* choices_ = nullptr;  // null: nothing to do
  std::string device_;
  std::optional<std::filesystem::path> path_;
};

}  // namespace bantam::cli
