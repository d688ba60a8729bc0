// MemoryBlock: a fixed amount of memory, allocated once, that a library's own allocations come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace bantam {

/// First fit in [address, address + bytes), which belongs to someone else. Addresses are aligned to 256 bytes, as is
/// the block. Memory that is freed is available at once: whoever frees it waits for work that uses it. Thread-safe.
class MemoryBlock {
 public:
  static constexpr std::size_t kAllocationUnit = 256;

  MemoryBlock(void* address, std::size_t bytes)
      : first_(static_cast<std::byte*>(address)), bytes_(bytes / kAllocationUnit * kAllocationUnit) {}

  /// Null where there is no room, and for zero bytes.
  void* allocate(std::size_t bytes);
  /// False, with nothing changed, for an address that is not allocated.
  bool free(void* address);
  /// Most bytes that were allocated at once.
  std::uint64_t peak_bytes() const;

 private:
  std::byte* first_;
  std::size_t bytes_;
  mutable std::mutex guard_;
  std::map<std::size_t, std::size_t> live_;  // offset → bytes
  std::uint64_t in_use_ = 0, peak_ = 0;
};

}  // namespace bantam
