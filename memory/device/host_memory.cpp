// The host's free memory against a pool.
#include "bantam/memory/device/host_memory.h"

#include <fmt/format.h>

#include "bantam/base/byte_size.h"

namespace bantam {

std::optional<OutOfMemory> refused_by_host(const HostInfo& host, std::uint64_t bytes) {
  const std::uint64_t left = host.free_bytes + host.swap_bytes;
  if (host.bound.empty() || bytes <= left) return std::nullopt;
  return OutOfMemory(
      fmt::format("the run needs a pool of {} ({} B) on cpu, and this process can take {} ({} B) more of "
                  "the host's memory{}: {} says so",
                  format_byte_size(bytes), bytes, format_byte_size(left), left, host.swap_bytes > 0 ? " and swap" : "",
                  host.bound),
      {.requested_bytes = bytes, .limit_bytes = left});
}

void require_host_memory(Device device, std::uint64_t bytes) {
  if (device.kind != DeviceKind::cpu || device.meta) return;
  if (const auto refused = refused_by_host(read_host_info(), bytes)) throw *refused;
}

}  // namespace bantam
