// Why memory is still in use: what an allocator holds, for whom, what is lost to rounding, and what trim would give
// back; as text and as JSON, adding up to the byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// An answer to "why is it still using memory?". Sizes in bytes:
///   total = overhead + held,  held = in use + set aside + cached,  in use = requested + rounding.
struct MemoryReport {
  std::string device;
  MemoryStats stats;
  std::vector<Holder> holders;        ///< by layer and category, largest first; sums to stats.in_use_bytes
  std::uint64_t trimmable_bytes = 0;  ///< what trim() would give back: of what is cached, and of what is set aside
  std::vector<OverheadLine> overhead;

  /// Held from the device's source: in use, set aside or cached.
  std::uint64_t reserved_bytes() const { return stats.pool_bytes; }
  /// Held for planned steps (placement.h), and not in use now.
  std::uint64_t set_aside_bytes() const { return stats.arena_idle_bytes(); }
  /// Held, and in use by nobody.
  std::uint64_t cached_bytes() const { return stats.free_bytes(); }
  /// What rounding requests up to 256 bytes costs.
  std::uint64_t rounding_bytes() const { return stats.in_use_bytes - stats.requested_bytes; }
  std::uint64_t overhead_bytes() const;
  std::uint64_t total_bytes() const { return overhead_bytes() + reserved_bytes(); }
};

/// The state of `allocator` at one moment (taken under its lock), beside lines for what it does not hold. Thread-safe.
MemoryReport memory_report(const BfcAllocator& allocator, std::span<const OverheadLine> overhead = {});

/// A report for people, at most 80 columns wide, with the `holders` largest holders by name.
std::string to_text(const MemoryReport& report, std::size_t holders = 10);

/// One JSON object, every size exact, every holder named.
std::string to_json(const MemoryReport& report);

}  // namespace bantam
