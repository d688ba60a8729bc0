// Internal: the message of OutOfMemory: what was asked, what is reserved, for whom, and what to change.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/accounting.h"

namespace bantam {

/// "1.50 GiB (1610612736 B)".
std::string size_text(std::uint64_t bytes);

/// Lines that name the five largest, which come first; empty where there are none.
std::string holders_text(std::span<const Holder> holders);

struct RefusedRequest {
  std::size_t bytes = 0;
  AllocationTag tag;
  bool source_refused = false;  ///< the source had no more, below the limit
  std::size_t page_bytes = 0;   ///< memory comes in pages of this; 0: to the byte
};

/// `holders` largest first; the five largest are named.
OutOfMemory out_of_memory(const std::string& allocator, const RefusedRequest& request, const MemoryStats& stats,
                          std::span<const Holder> holders);

/// A limit below the `reserved_bytes` of regions with live memory.
OutOfMemory limit_too_low(const std::string& allocator, std::uint64_t limit_bytes, std::uint64_t reserved_bytes,
                          const MemoryStats& stats);

}  // namespace bantam
