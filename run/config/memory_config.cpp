// Reads `memory:`: limits, shares, budget.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/run/config/sections.h"

namespace bantam::run {
namespace {

/// The device that a key of the map `of` names.
std::string device_at_key(std::string_view of, const std::string& key, const ConfigNode& value) {
  try {
    const Device device = parse_device(key);
    if (device.is_logical())
      value.fail_at_key(
          fmt::format("{}: '{}' is a share: name the device, and give its shares in memory.logical", of, key));
    return to_string(device);
  } catch (const DeviceError& error) {
    value.fail_at_key(fmt::format("{}: {}", of, error.what()));
  }
}

/// `limits` or `logical`: a value for each device, which has several names ("cuda" is "cuda:0").
template <class Value, class Read>
std::map<std::string, Value> read_devices(ConfigMap& memory, ConfigKey key, const Read& read) {
  std::map<std::string, Value> values;
  std::map<std::string, std::string> keys;  // as written, by device
  const auto found = memory.find(key);
  if (!found) return values;
  for (const auto& [name, value] : found->entries()) {
    const std::string device = device_at_key(found->path(), name, value);
    const auto [first, fresh] = keys.try_emplace(device, name);
    if (!fresh)
      value.fail_at_key(
          fmt::format("duplicate key '{}' in {}: it is the device of '{}'", name, found->path(), first->second));
    values.emplace(device, read(value));
  }
  return values;
}

/// One limit, or a list with an entry for each rank.
std::vector<std::uint64_t> read_limit(const ConfigNode& value) {
  if (!value.is_list()) return {value.as_byte_size(1)};
  std::vector<std::uint64_t> limits;
  for (const ConfigNode& limit : value.items()) limits.push_back(limit.as_byte_size(1));
  if (limits.empty()) value.fail(value.path() + ": expected the bytes of each rank, as [2GiB, 1GiB]");
  return limits;
}

std::vector<std::uint64_t> read_shares(const ConfigNode& value) {
  std::vector<std::uint64_t> shares;
  for (const ConfigNode& share : value.items()) shares.push_back(share.as_byte_size(1));
  if (shares.empty()) value.fail(value.path() + ": expected the bytes of each share, as [2GiB, 1GiB]");
  return shares;
}

OnOutOfMemory read_on_oom(ConfigMap& map) {
  const std::string policy = map.choice(
      {"on_oom",
       "What an update does that runs out of memory. fail: the run ends, saved; accumulate: it is repeated in halved "
       "micro-batches, refused for models with batch norm; accumulate_with_batch_norm: the same with batch norm, whose "
       "statistics are then those of the smaller micro-batches.",
       "accumulate"},
      {"fail", "accumulate", "accumulate_with_batch_norm"}, "fail");
  if (policy == "fail") return OnOutOfMemory::fail;
  return policy == "accumulate" ? OnOutOfMemory::accumulate : OnOutOfMemory::accumulate_with_batch_norm;
}

}  // namespace

MemoryConfig read_memory(ConfigMap map) {
  map.self().describe(
      "How much memory the run may have, and what happens where it is too little. See LIMITS.md and FITTING.md.",
      "memory:\n  limits: {\"cuda:0\": 4GiB, cpu: 8GiB}\n  on_oom: accumulate");
  MemoryConfig memory;
  memory.growth = map.boolean(
      {"growth",
       "true: where the device does not have the planned pool at once, memory is reserved as it is needed. false: that "
       "is an error before training."},
      true);
  const auto limits = read_devices<std::vector<std::uint64_t>>(
      map,
      {"limits",
       "Most bytes of this process on a device, by the device's name. On a GPU all that the driver counts for the "
       "process, on the CPU the allocator's pools. A list has a limit for each rank of a run; of ranks on several GPUs "
       "each has the limit of its own, else that of cuda (SCALING.md).",
       "{\"cuda:0\": 4GiB, cpu: 8GiB} | {cpu: [200MiB, 100MiB]}", "no limit"},
      read_limit);
  for (const auto& [device, bytes] : limits) {
    memory.limits[device] = bytes.front();
    if (bytes.size() > 1) memory.limits_by_rank[device] = bytes;
  }
  memory.logical = read_devices<std::vector<std::uint64_t>>(
      map,
      {"logical", "Splits a device into shares of these bytes, each a device of its own: cuda:1/0, cuda:1/1, ….",
       "{\"cuda:1\": [2GiB, 1GiB]}", "no device is split"},
      read_shares);
  const ConfigNode budget = map.node(
      {"budget",
       "Bytes of the run's pool: what backward recomputes is chosen to fit, with the least extra work. 0: no budget; "
       "auto: what a limit allows, else the memory that is free on the device when the run begins.",
       "1.5GiB | auto"},
      "0");
  if (!budget.is_text("auto")) memory.budget = budget.as_byte_size();  // else a decision sets it
  memory.on_oom = read_on_oom(map);
  map.finish();
  return memory;
}

}  // namespace bantam::run
