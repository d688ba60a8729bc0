// `cache: auto`, by the memory and the disk that are free here.
#include "bantam/run/config/cache_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

namespace bantam::run {
namespace {

/// Host memory available to data sets of each rank: three quarters of what the CPU's limit, or a budget there, allows
/// every rank, and of its share of what is free on this machine.
std::uint64_t free_host_bytes(const MemoryConfig& memory, Device device, const RankCount& ranks) {
  constexpr std::uint64_t kQuarters = 3;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  const auto limit = memory.limits.find("cpu");
  if (limit != memory.limits.end()) most = limit->second;
  const auto by_rank = memory.limits_by_rank.find("cpu");
  if (ranks.all > 1 && by_rank != memory.limits_by_rank.end())
    most = std::min(most, *std::ranges::min_element(by_rank->second));
  if (device == Device::cpu() && memory.budget > 0) most = std::min(most, memory.budget);
  if (const std::uint64_t free = device_info(Device::cpu()).free_bytes; free > 0)
    most = std::min(most, free / static_cast<std::uint64_t>(ranks.local));
  return most / 4 * kQuarters;
}

/// A quarter of the bytes that are free on the current folder's disk, below which a run's folder lies by default: the
/// most for a cache that the configuration does not ask for.
std::uint64_t free_disk_share() {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(".", error);
  return error ? 0 : space.available / 4;
}

/// An eighth of the least of the bytes that the configuration names for the run's device; 0: it names none.
std::uint64_t share_of_named(const MemoryConfig& memory, Device device) {
  constexpr std::uint64_t kShare = 8;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  const auto limit = memory.limits.find(to_string(device));
  const auto split = memory.logical.find(to_string(device.whole()));
  if (limit != memory.limits.end()) least = std::min(least, limit->second);
  if (memory.budget > 0) least = std::min(least, memory.budget);
  if (device.is_logical() && split != memory.logical.end())
    least = std::min(least, split->second.at(static_cast<std::size_t>(device.share)));
  return least == std::numeric_limits<std::uint64_t>::max() ? 0 : least / kShare;
}

constexpr std::uint64_t kLittle = 1u << 30;  // of data, for any GPU

}  // namespace

void decide_cache(RunConfig& config, const RankCount& ranks) {
  if (!config.data) return;
  if (ranks.all > 1 && config.data->cache_is_auto) config.data->pipeline.cache = CacheKind::automatic;
  if (config.data->pipeline.cache != CacheKind::automatic) return;
  const std::uint64_t named = share_of_named(config.memory, config.device);
  const bool is_gpu = config.device.kind == DeviceKind::cuda;
  std::uint64_t host = free_host_bytes(config.memory, config.device, ranks);
  // A data set of most of a small budget would leave the batch less than a still smaller budget does.
  if (!is_gpu && config.data->pipeline.batch_size_is_auto && named > 0) host = std::min(host, named);
  bantam::decide_cache(*config.data, {.device_bytes = is_gpu ? (named > 0 ? std::min(named, kLittle) : kLittle) : 0,
                                      .host_bytes = host,
                                      .disk_bytes = ranks.all > 1 ? 0 : free_disk_share()});
}

std::uint64_t cache_bytes(const RunConfig& config) {
  if (!config.data || !config.data->cache_is_auto) return 0;
  const std::uint64_t named = share_of_named(config.memory, config.device);
  return config.device.kind == DeviceKind::cuda ? std::min(named, kLittle) : named;
}

}  // namespace bantam::run
