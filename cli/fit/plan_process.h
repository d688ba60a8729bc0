// What a planned run takes on a GPU besides its pool, from a device profile or measured, in words and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "bantam/cli/config/options.h"
#include "bantam/memory/device/device_profile.h"
#include "bantam/memory/limits/process_limit.h"

namespace bantam::cli {

/// The device that a plan is for.
struct PlanTarget {
  DeviceProfile profile;
  bool counts = false;  ///< whether a limit there is one of the process: a GPU, not a share of it
  /// Kept free under a limit besides the profile's overhead: a profile has the kernels in that, a measurement before
  /// the run does not.
  std::uint64_t reserve_bytes = kLateReserve;
  bool machine = true;  ///< false: the profile was named, whatever this machine has
};

/// Where `--device` names a profile ("h200"), or there is a `--profile` file, the profile's; the options then ask for
/// cuda:0. Nothing where they do neither. Throws ConfigError for a file that cannot be read, and for a `--device` that
/// is neither a device nor a profile, with the profiles' names.
std::optional<DeviceProfile> take_profile(CommonOptions& options, const std::string& profile_file);

/// `named`, or the profile of the configuration's device.
PlanTarget plan_target(const RunConfig& config, const std::optional<DeviceProfile>& named);
/// The same with the overhead that a Runtime of this process has on the device before its first kernel, where the
/// device is a GPU of this machine with a limit or shares: what is cut from them then is what the run's own Runtime
/// cuts. Makes a context there. Without all that, or where it cannot be measured, the profile.
PlanTarget measured_target(const RunConfig& config);

/// What a limit of the process holds besides the pool; 0 where only pools count.
std::uint64_t bytes_besides_pool(const PlanTarget& target);
/// What a limit of `memory` bytes leaves for the pool, as the Runtime cuts it; 0: nothing.
std::uint64_t pool_bytes_under(const PlanTarget& target, std::uint64_t memory);
/// What the driver will count for a process with a pool of `pool_bytes`.
std::uint64_t process_bytes(const PlanTarget& target, std::uint64_t pool_bytes);
/// The least limit under which a pool of `pool_bytes` can be held: on a GPU the process and the reserve.
std::uint64_t limit_bytes_for(const PlanTarget& target, std::uint64_t pool_bytes);

/// A table of named lines, down to the least limit; without a pool, to what a limit holds besides it. "" where only
/// pools count.
std::string process_table(const PlanTarget& target, std::optional<std::uint64_t> pool_bytes);
/// profile, profile_measured, overhead, overhead_bytes, reserve_bytes, process_bytes.
void add_process(nlohmann::ordered_json& row, const PlanTarget& target, std::uint64_t pool_bytes);

}  // namespace bantam::cli
