// Where a program's algorithm choices come from and go to: the user's cache, and the run's own folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/runtime/algorithm_file.h"
#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/ranks/run_ranks.h"

namespace bantam::run {

/// The file that `algorithms` of a configuration means for a device: none for "off"; for "auto" what the environment
/// says in BANTAM_ALGORITHM_CACHE (a path, or "off"), else $XDG_CACHE_HOME/bantam (or
/// ~/.cache/bantam)/algorithms-<device>.json; else the path itself.
std::optional<std::filesystem::path> algorithm_cache_path(const std::string& algorithms, const std::string& device);

/// Whether times measured now say anything of other runs: not under Nsight Compute and compute-sanitizer, which slow
/// kernels down unevenly. They are recognised by the environment variables they set.
bool timings_count();

/// The facts of a run that decide where its algorithms come from, and when they are timed.
struct AlgorithmSources {
  /// Choices of the run that is resumed, which come before the cache's; empty: there are none.
  std::filesystem::path run_file = {};
  std::uint64_t planned_pool_bytes = 0;  ///< the pool of a run that warms up under a limit; 0: none is timed under one
  RunRanks ranks = {};
  /// Nothing is timed but within choose_in_rounds. A resumed run then has its own choices alone: what the cache has
  /// come to know since would be others than the run has used.
  bool in_rounds = false;
};

/// Choices of one runtime's CUDA device: read when made, and timed from then on. Candidates' kernels need memory that
/// no plan knows: under a limit they are timed only where it has room for them beside the planned pool, and only until
/// `end_timing`, when their memory is measured. Of several ranks the first with a model of GPU reads files. On other
/// devices, and where `algorithms` is off, this does nothing.
class AlgorithmCache {
 public:
  /// Files that are missing, damaged or another device's are passed over, the last two with a line in the runtime's
  /// log. Where nothing is timed and nothing is known, the runtime's log says so. All ranks call it.
  AlgorithmCache(Runtime& runtime, const RunConfig& config, const AlgorithmSources& sources = {});

  /// `warm_up` runs all that the run will run; each problem is timed on one rank, for all (warm_up_in_rounds). `work`:
  /// what ranks of a GPU model may differ by. All ranks call it.
  void choose_in_rounds(const std::string& work, const std::function<void()>& warm_up);
  /// Models of GPU, by rank, where they are not all equal; else empty.
  const std::vector<std::string>& unlike_cards() const { return unlike_cards_; }

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
  void read_files();
  bool may_time() const;

  Runtime& runtime_;
  AlgorithmSources sources_;
  kernels::AlgorithmChoices* choices_ = nullptr;  // null: nothing to do
  Device where_;
  std::string device_;
  std::optional<std::filesystem::path> path_;
  std::vector<std::string> unlike_cards_;
};

}  // namespace bantam::run
