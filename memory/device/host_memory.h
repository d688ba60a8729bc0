// Whether the host can hold a pool: checked before it is reserved, for a system kills a process that outgrows its
// container without a message.
#pragma once

#include <cstdint>
#include <optional>

#include "bantam/base/error.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/device/host_info.h"

namespace bantam {

/// Why the host cannot hold a pool of `bytes`: it is more than `host` says this process can still allocate, swap
/// included. `beside`: bytes outside the pool that are needed at times while it exists. nullopt: it can, or the system
/// does not say. The facts' limit_bytes is the largest pool possible.
std::optional<OutOfMemory> refused_by_host(const HostInfo& host, std::uint64_t bytes, std::uint64_t beside = 0);
/// Throws that for a pool on the CPU of this machine; does nothing for other devices. Without it, the system kills a
/// run that outgrows its container without a message.
void require_host_memory(Device device, std::uint64_t bytes, std::uint64_t beside = 0);

}  // namespace bantam
