// The bytes that a run will write, compared with those that are free on its disks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bantam/base/error.h"
#include "bantam/run/fit/run_plan.h"

namespace bantam::run {

/// A run that was asked to begin only where its files fit the disk.
class NoRoomOnDisk : public Error {
 public:
  using Error::Error;
};

/// Bytes that a run needs room for.
struct DiskNeed {
  static constexpr std::int64_t kCheckpoints = 2;  ///< the newest, and the one before it until that is whole

  std::uint64_t weights_bytes = 0;     ///< of all files of weights in the run's folder: the last, the best, averages
  std::uint64_t checkpoint_bytes = 0;  ///< of one checkpoint
  std::int64_t checkpoints = kCheckpoints;
  std::uint64_t packed_bytes = 0;       ///< of the data that `cache: disk` packs; 0: none are packed
  std::filesystem::path packed_folder;  ///< empty: the run's

  std::uint64_t run_bytes() const { return weights_bytes + checkpoint_bytes * static_cast<std::uint64_t>(checkpoints); }
};

/// Computes the need of a new run, or of one with `kept` checkpoints, from its plan's weights and optimizer state.
DiskNeed disk_need(const RunConfig& config, const RunPlan& plan, std::int64_t kept = 0);

/// Bytes that this user may still write below a folder that is there, or will be: statvfs's, which know no quotas.
/// nullopt: the system does not say.
std::optional<std::uint64_t> free_disk_bytes(const std::filesystem::path& folder);

struct DiskCheck {
  bool strict = false;           ///< what does not fit is an error, else a warning
  std::filesystem::path folder;  ///< whose disk counts; empty: the run's folder
  std::function<std::optional<std::uint64_t>(const std::filesystem::path&)> free_bytes = free_disk_bytes;
};

/// Describes the files that do not fit, with advice; empty: everything fits, or the system does not say.
std::string disk_shortage(const DiskNeed& need, const std::filesystem::path& run, const DiskCheck& check);

/// The shortage as a warning, or, where `check` is strict, as NoRoomOnDisk.
void check_disk(const DiskNeed& need, const std::filesystem::path& run, const DiskCheck& check,
                const std::function<void(std::string_view)>& warn);

}  // namespace bantam::run
