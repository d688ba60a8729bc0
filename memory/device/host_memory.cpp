// The host's free memory against a pool.
#include "bantam/memory/device/host_memory.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"

namespace bantam {

std::optional<OutOfMemory> refused_by_host(const HostInfo& host, std::uint64_t bytes, std::uint64_t beside) {
  const std::uint64_t free = host.free_bytes + host.swap_bytes, left = free - std::min(free, beside);
  if (host.bound.empty() || bytes <= left) return std::nullopt;
  const std::string more = beside > 0 ? fmt::format(" and {} beside it while it saves", format_byte_size(beside)) : "";
  return OutOfMemory(
      fmt::format("the run needs a pool of {} ({} B) on cpu{}, and this process can allocate {} ({} B) more of "
                  "the host's memory{}: {} says so",
                  format_byte_size(bytes), bytes, more, format_byte_size(free), free,
                  host.swap_bytes > 0 ? " and swap" : "", host.bound),
      {.requested_bytes = bytes, .limit_bytes = left});
}

void require_host_memory(Device device, std::uint64_t bytes, std::uint64_t beside) {
  if (device.kind != DeviceKind::cpu || device.meta) return;
  if (const auto refused = refused_by_host(read_host_info(), bytes, beside)) throw *refused;
}

}  // namespace bantam
