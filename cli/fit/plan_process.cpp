// Overhead lines and their sums.
#include "bantam/cli/fit/plan_process.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam::cli {
namespace {

constexpr std::uint64_t kPage = 2u << 20;  // the driver's: pools are counted in whole ones

std::uint64_t in_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// Throws where `text` is no device, with the profiles that could have been meant, nearest first.
void require_device_name(const std::string& text) {
  if (text == "auto") return;
  try {
    (void)parse_device(text);
  } catch (const DeviceError&) {
    std::vector<std::string> profiles = device_profile_names();
    std::ranges::stable_sort(profiles, {}, [&](const std::string& name) { return edit_distance(text, name); });
    throw ConfigError(fmt::format("--device: '{}' is no device (auto, cpu, cuda:N)\nand no profile; there are\n  {}",
                                  text, join(profiles, ", ", ", ")));
  }
}

}  // namespace

std::optional<DeviceProfile> take_profile(CommonOptions& options, const std::string& profile_file) {
  const auto device = options.flag_overrides.find("device");
  const bool given = device != options.flag_overrides.end();
  if (!profile_file.empty()) {
    if (!given) options.flag_overrides["device"] = "cuda:0";
    return load_device_profile(profile_file);
  }
  if (!given) return std::nullopt;
  auto named = find_device_profile(device->second);
  if (named)
    device->second = "cuda:0";
  else
    require_device_name(device->second);
  return named;
}

PlanTarget plan_target(const RunConfig& config, const std::optional<DeviceProfile>& named) {
  const bool counts = config.device.kind == DeviceKind::cuda && !config.device.is_logical();
  return {.profile = named ? *named : profile_of(config.device), .counts = counts, .machine = !named};
}

PlanTarget measured_target(const RunConfig& config) {
  PlanTarget target = plan_target(config, std::nullopt);
  const std::string name = to_string(config.device);
  const bool here = config.device.is_cuda() && config.device.index < cuda_device_count();
  const bool bounded = config.memory.limits.contains(name) || config.memory.logical.contains(name);
  if (!target.counts || !here || !bounded) return target;
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
  return target.counts ? total_bytes(target.profile.overhead) + target.reserve_bytes : 0;
}

std::uint64_t pool_bytes_under(const PlanTarget& target, std::uint64_t memory) {
  return memory - std::min(memory, bytes_besides_pool(target));
}

std::uint64_t process_bytes(const PlanTarget& target, std::uint64_t pool_bytes) {
  return total_bytes(target.profile.overhead) + in_pages(pool_bytes);
}

std::uint64_t limit_bytes_for(const PlanTarget& target, std::uint64_t pool_bytes) {
  return target.counts ? process_bytes(target, pool_bytes) + kLateReserve : pool_bytes;
}

std::string process_table(const PlanTarget& target, std::optional<std::uint64_t> pool_bytes) {
  if (!target.counts) return "";
  Table table({{"process on " + target.profile.title(), Align::left}, {"bytes"}});
  for (const OverheadLine& line : target.profile.overhead) table.add_row({line.name, format_byte_size(line.bytes)});
  if (pool_bytes) {
    table.add_row({"pool, in pages of 2 MiB", format_byte_size(in_pages(*pool_bytes))});
    table.add_row({"the process", format_byte_size(process_bytes(target, *pool_bytes))});
  }
  table.add_row({"reserve", format_byte_size(kLateReserve)});
  if (pool_bytes)
    table.add_row({"least limit (--memory)", format_byte_size(limit_bytes_for(target, *pool_bytes))});
  else
    table.add_row({"besides the pool", format_byte_size(total_bytes(target.profile.overhead) + kLateReserve)});
  return "\n" + table.to_string();
}

void add_process(nlohmann::ordered_json& row, const PlanTarget& target, std::uint64_t pool_bytes) {
  if (!target.counts) return;
  row["profile"] = target.profile.name;
  row["profile_measured"] = target.profile.measured;
  for (const OverheadLine& line : target.profile.overhead) row["overhead"][line.name] = line.bytes;
  row["overhead_bytes"] = total_bytes(target.profile.overhead);
  row["reserve_bytes"] = kLateReserve;
  row["process_bytes"] = process_bytes(target, pool_bytes);
}

}  // namespace bantam::cli
