// Why memory is still in use: what an allocator has reserved, for whom, what is lost to rounding, and what trim would
// release; as text and as JSON, adding up to the byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/device.h"

BANTAM_API_BEGIN
namespace bantam {

/// An answer to "why is it still using memory?". Sizes in bytes:
///   total = overhead + reserved,  reserved = in use + set aside + cached,  in use = requested + rounding.
struct MemoryReport {
  std::string device;
  MemoryStats stats;
  std::vector<Holder> holders;        ///< by layer and category, largest first; sums to stats.in_use_bytes
  std::uint64_t trimmable_bytes = 0;  ///< what trim() would release of the cached and the set-aside bytes
  std::vector<OverheadLine> overhead;

  /// Reserved from the device: in use, set aside or cached.
  std::uint64_t reserved_bytes() const { return stats.pool_bytes; }
  /// Reserved for planned steps, and not in use now.
  std::uint64_t set_aside_bytes() const { return stats.arena_idle_bytes(); }
  /// Reserved, and in use by nobody.
  std::uint64_t cached_bytes() const { return stats.free_bytes(); }
  /// The bytes that rounding requests up to 256 bytes costs.
  std::uint64_t rounding_bytes() const { return stats.in_use_bytes - stats.requested_bytes; }
  std::uint64_t overhead_bytes() const;
  std::uint64_t total_bytes() const { return overhead_bytes() + reserved_bytes(); }
};

/// The state of `allocator` at one moment (read under its lock), beside lines for what it does not hold. Thread-safe.
MemoryReport memory_report(const BfcAllocator& allocator, std::span<const OverheadLine> overhead = {});

/// A report for people, at most 80 columns wide, with the `holders` largest holders by name.
std::string to_text(const MemoryReport& report, std::size_t holders = 10);

/// One JSON object, every size exact, every holder named.
std::string to_json(const MemoryReport& report);

}  // namespace bantam
BANTAM_API_END
