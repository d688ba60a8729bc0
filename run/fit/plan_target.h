// PlanTarget: the device that a run is planned for, and a run's memory there besides its pool.
#pragma once

#include <cstdint>
#include <optional>

#include "bantam/memory/device/device_profile.h"
#include "bantam/memory/limits/process_limit.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The device that a plan is for.
struct PlanTarget {
  Device device;  ///< the configuration's
  DeviceProfile profile;
  bool counts = false;  ///< whether a limit there is one of the process: a GPU, not a share of it
  /// Kept free under a limit besides the profile's overhead: a profile has the kernels in that, a measurement before
  /// the run does not.
  std::uint64_t reserve_bytes = kLateReserve;
  /// Bytes that the data set's readers keep beside the pool; they count against a CPU's limit.
  std::uint64_t readers_bytes = 0;
  bool machine = true;       ///< false: the profile was named, whatever this machine has
  std::uint64_t memory = 0;  ///< bytes to fit into, where they were asked for; 0: what the configuration says
};

/// Whether the device, or the one that it is a share of, is in this machine.
bool is_here(Device device);

/// `named`, or the profile of the configuration's device.
PlanTarget plan_target(const RunConfig& config, const std::optional<DeviceProfile>& named);
/// The same with the overhead that a Runtime of this process has on the device before its first kernel, where the
/// device is a GPU of this machine with a limit or shares: the pool's part of them is then that of the run's own
/// Runtime. Makes a context there. Without all that, or where it cannot be measured, the profile.
PlanTarget measured_target(const RunConfig& config);

/// Bytes that count against a limit of the process besides the pool; 0 where only pools count.
std::uint64_t bytes_besides_pool(const PlanTarget& target);
/// The pool's bytes under a limit of `memory` bytes, as the Runtime computes them; 0: nothing.
std::uint64_t pool_bytes_under(const PlanTarget& target, std::uint64_t memory);
/// A pool's bytes as the driver counts them: in whole pages.
std::uint64_t pool_in_pages(std::uint64_t pool_bytes);
/// Bytes that the driver will count for a process with a pool of `pool_bytes`.
std::uint64_t process_bytes(const PlanTarget& target, std::uint64_t pool_bytes);
/// The least limit under which a pool of `pool_bytes` can be reserved: on a GPU the process and the reserve.
std::uint64_t limit_bytes_for(const PlanTarget& target, std::uint64_t pool_bytes);

}  // namespace bantam::run
