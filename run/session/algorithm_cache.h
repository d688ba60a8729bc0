// Where a program's algorithm choices come from and go to: the user's cache, and the run's own folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "bantam/engine/runtime/algorithm_file.h"
#include "bantam/kernels/contracts/algorithm_choices.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The file that `algorithms` of a configuration means for a device: none for "off"; for "auto" what the environment
/// says in BANTAM_ALGORITHM_CACHE (a path, or "off"), else $XDG_CACHE_HOME/bantam (or
/// ~/.cache/bantam)/algorithms-<device>.json; else the path itself.
std::optional<std::filesystem::path> algorithm_cache_path(const std::string& algorithms, const std::string& device);

/// Whether times measured now say anything of other runs: not under Nsight Compute and compute-sanitizer, which slow
/// kernels down unevenly. They are recognised by the environment variables they set.
bool timings_count();

/// Choices of one runtime's CUDA device: read when made, and timed from then on. Candidates' kernels need memory that
/// no plan knows: under a limit they are timed only where it has room for them beside the planned pool, and only until
/// `end_timing`, when their memory is measured. On other devices, and where `algorithms` is off, this does nothing.
class AlgorithmCache {
 public:
  /// `run_file`: choices of the run that is resumed, which come before the cache's; empty: there are none. Files that
  /// are missing, damaged or another device's are passed over, the last two with a line in the runtime's log.
  /// `planned_pool_bytes`: of a run that warms up and settles its limit; 0: nothing is timed under a limit. Where
  /// nothing is timed and nothing is known, the runtime's log says so.
  AlgorithmCache(Runtime& runtime, const RunConfig& config, const std::filesystem::path& run_file = {},
                 std::uint64_t planned_pool_bytes = 0);

  /// Under a limit: from now on what was chosen is used, and no candidate is loaded any more.
  void end_timing();

  /// Adds what is new to the cache's file, if timings count. A cache that cannot be written is only logged.
  void save();
  /// The runtime's choices so far; empty where there is nothing to do.
  AlgorithmMap chosen() const;
  /// Writes choices beside a run's state; from any thread. Throws DataError.
  void save_with_run(const std::filesystem::path& run_file, const AlgorithmMap& chosen) const;

 private:
  AlgorithmMap read(const std::filesystem::path& path) const;
  bool has_room_to_time(std::uint64_t planned_pool_bytes) const;

  Runtime& runtime_;
  kernels::AlgorithmChoices* choices_ = nullptr;  // null: nothing to do
  Device where_;
  std::string device_;
  std::optional<std::filesystem::path> path_;
};

}  // namespace bantam::run
