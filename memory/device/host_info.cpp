// Reads /proc/cpuinfo, /proc/meminfo and the control group's limits of memory and processor time (both versions of the
// interface).
#include "bantam/memory/device/host_info.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <sched.h>

namespace bantam {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The value of "key : value" in a file of such lines, the first such line's.
std::string value_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(std::string_view(line).substr(0, colon)) == key)
      return std::string(trimmed(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

// A file of one number; nullopt for "max" (no limit) and for an absent file.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return leading_number(trimmed(line));
}

// The path of this process' control group: version 2 has one line "0::/path", version 1 one for each set of
// controllers.
std::string group_path(const std::string& root, bool version2, std::string_view controller = "memory") {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string wanted = version2 ? ",," : "," + std::string(controller) + ",";
    if (version2 ? controllers == wanted : controllers.find(wanted) != std::string::npos)
      return std::string(trimmed(std::string_view(line).substr(second + 1)));
  }
  return {};
}

// How one version of the interface names a group's numbers.
struct GroupFiles {
  const char *limit, *use;
  const char *active_cache, *inactive_cache;  // lines of memory.stat
  const char *swap_limit, *swap_use;
  bool swap_with_memory;  // the two above count memory and swap together
};
constexpr GroupFiles kVersion2{"memory.max",      "memory.current",      "active_file", "inactive_file",
                               "memory.swap.max", "memory.swap.current", false};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes",
                               "memory.usage_in_bytes",
                               "total_active_file",
                               "total_inactive_file",
                               "memory.memsw.limit_in_bytes",
                               "memory.memsw.usage_in_bytes",
                               true};

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a - std::min(a, b); }

// The number after "key " in a file of such lines.
std::uint64_t stat_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return leading_number(std::string_view(line).substr(key.size() + 1)).value_or(0);
  return 0;
}

// Applies the limits of a group, or of one above it, to memory and swap. Page cache counts as use, but is reclaimable.
void apply_group(HostInfo& info, const std::string& group, const GroupFiles& names) {
  const auto most = number_in(group + names.limit);
  std::uint64_t left = ~std::uint64_t{0};
  if (most) {
    const std::string stat = group + "memory.stat";
    const std::uint64_t used = less(number_in(group + names.use).value_or(0),
                                    stat_of(stat, names.active_cache) + stat_of(stat, names.inactive_cache));
    left = less(*most, used);
    info.total_bytes = info.total_bytes == 0 ? *most : std::min(info.total_bytes, *most);
    if (left < info.free_bytes) info.bound = group + names.limit;
    info.free_bytes = std::min(info.free_bytes, left);
  }
  if (const auto most_swap = number_in(group + names.swap_limit)) {
    const std::uint64_t swap_left = less(*most_swap, number_in(group + names.swap_use).value_or(0));
    info.swap_bytes = std::min(info.swap_bytes, names.swap_with_memory ? less(swap_left, left) : swap_left);
  }
}

// Calls `use(folder)` for a group and all groups above it, each of which bounds those below it. In a container the path
// may be the host's, where the mount begins at the container's own group: folders that are not there have no limits.
template <class Use>
void for_groups(const std::string& mount, std::string path, const Use& use) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    use(mount + path + "/");
    if (path.empty()) return;
    path.erase(std::min(path.rfind('/'), path.size()));
  }
}

void apply_group_limits(HostInfo& info, const std::string& mount, std::string path, const GroupFiles& names) {
  for_groups(mount, std::move(path), [&](const std::string& group) { apply_group(info, group, names); });
}

void apply_quota(HostInfo& info, double microseconds, double period, const std::string& file) {
  if (microseconds <= 0 || period <= 0) return;  // -1: none
  const double processors = microseconds / period;
  if (info.processor_quota > 0 && info.processor_quota <= processors) return;
  info.processor_quota = processors;
  info.quota_file = file;
}

// Version 2: "QUOTA PERIOD" or "max PERIOD" in cpu.max; version 1: a file of each, the quota -1 where there is none.
void apply_processor_quotas(HostInfo& info, const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  for_groups(mount, group_path(root, true), [&](const std::string& group) {
    std::ifstream file(group + "cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period) apply_quota(info, quota, period, group + "cpu.max");
  });
  for (const char* controllers : {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu"})
    for_groups(mount + controllers, group_path(root, false, "cpu"), [&](const std::string& group) {
      std::ifstream of_quota(group + "cpu.cfs_quota_us"), of_period(group + "cpu.cfs_period_us");
      double quota = 0, period = 0;
      if (of_quota >> quota && of_period >> period) apply_quota(info, quota, period, group + "cpu.cfs_quota_us");
    });
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1,
                  static_cast<int>(std::thread::hardware_concurrency()));  // over 1024 processors: the set is too small
}

// A quota of 2.005 processors is meant as 2.
constexpr double kQuotaSlack = 0.01;

}  // namespace

HostInfo read_host_info(const std::string& root) {
  HostInfo info;
  info.processor = value_of(root + "/proc/cpuinfo", "model name");
  if (info.processor.empty()) info.processor = "CPU";
  info.allowed_processors = info.processors = usable_processors();
  apply_processor_quotas(info, root);
  if (info.processor_quota > 0 && info.processor_quota < info.allowed_processors)
    info.processors = std::max(1, static_cast<int>(std::ceil(info.processor_quota - kQuotaSlack)));
  const std::string meminfo = root + "/proc/meminfo";
  info.total_bytes = leading_number(value_of(meminfo, "MemTotal")).value_or(0) * 1024;
  info.swap_bytes = leading_number(value_of(meminfo, "SwapFree")).value_or(0) * 1024;
  const auto available = leading_number(value_of(meminfo, "MemAvailable"));
  if (available) info.bound = meminfo;
  info.free_bytes = available ? *available * 1024 : ~std::uint64_t{0};
  apply_group_limits(info, root + "/sys/fs/cgroup", group_path(root, true), kVersion2);
  apply_group_limits(info, root + "/sys/fs/cgroup/memory", group_path(root, false), kVersion1);
  if (info.bound.empty()) info.free_bytes = 0;
  return info;
}

HostProcess read_host_process(const std::string& root) {
  const std::string status = root + "/proc/self/status";
  HostProcess process;
  process.resident_bytes = leading_number(value_of(status, "VmRSS")).value_or(0) * 1024;
  process.peak_resident_bytes = leading_number(value_of(status, "VmHWM")).value_or(0) * 1024;
  const auto version2 = number_in(root + "/sys/fs/cgroup" + group_path(root, true) + "/memory.current");
  process.group_bytes = version2.value_or(
      number_in(root + "/sys/fs/cgroup/memory" + group_path(root, false) + "/memory.usage_in_bytes").value_or(0));
  return process;
}

}  // namespace bantam
