// Overhead by profile or by measurement, and the rest of a limit after it.
#include "bantam/run/fit/plan_target.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam::run {
namespace {

constexpr std::uint64_t kPage = 2u << 20;  // the driver's: pools are counted in whole ones

}  // namespace

bool is_here(Device device) { return device.kind == DeviceKind::cpu || device.index < cuda_device_count(); }

PlanTarget plan_target(const RunConfig& config, const std::optional<DeviceProfile>& named) {
  const bool counts = config.device.kind == DeviceKind::cuda && !config.device.is_logical();
  const bool host = config.device.whole() == Device::cpu() && !config.device.is_logical();
  return {.device = config.device,
          .profile = named ? *named : profile_of(config.device),
          .counts = counts,
          .readers_bytes = host && config.data ? resident_bytes(*config.data) : 0,
          .machine = !named};
}

PlanTarget measured_target(const RunConfig& config) {
  PlanTarget target = plan_target(config, std::nullopt);
  const std::string name = to_string(config.device);
  const bool bounded = config.memory.limits.contains(name) || config.memory.logical.contains(name);
  if (!target.counts || !is_here(config.device) || !bounded) return target;
  try {
    // Any limit has the Runtime load each library before the pool; this one refuses nothing.
    Runtime runtime({.threads = 1, .limits = {{name, std::uint64_t{1} << 60}}});
    (void)runtime.allocator(config.device);
    target.profile.overhead = runtime.memory_overhead(config.device);
    target.reserve_bytes = kKernelReserve;
  } catch (const Error&) {  // the run itself will say what is wrong with the device
  }
  return target;
}

std::uint64_t bytes_besides_pool(const PlanTarget& target) {
  return target.counts ? total_bytes(target.profile.overhead) + target.reserve_bytes : target.readers_bytes;
}

std::uint64_t pool_bytes_under(const PlanTarget& target, std::uint64_t memory) {
  return memory - std::min(memory, bytes_besides_pool(target));
}

std::uint64_t pool_in_pages(std::uint64_t pool_bytes) { return (pool_bytes + kPage - 1) / kPage * kPage; }

std::uint64_t process_bytes(const PlanTarget& target, std::uint64_t pool_bytes) {
  return total_bytes(target.profile.overhead) + pool_in_pages(pool_bytes);
}

std::uint64_t limit_bytes_for(const PlanTarget& target, std::uint64_t pool_bytes) {
  return target.counts ? process_bytes(target, pool_bytes) + kLateReserve : pool_bytes + target.readers_bytes;
}

}  // namespace bantam::run
