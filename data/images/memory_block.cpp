// A library has a few long-lived buffers: a walk over them costs nothing.
#include "bantam/data/images/memory_block.h"

#include <algorithm>

namespace bantam {

void* MemoryBlock::allocate(std::size_t bytes) {
  const std::lock_guard lock(guard_);
  if (bytes == 0 || bytes > bytes_) return nullptr;
  const std::size_t rounded = (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
  std::size_t begin = 0;
  for (const auto& [offset, size] : live_) {
    if (offset - begin >= rounded) break;
    begin = offset + size;
  }
  if (bytes_ - begin < rounded) return nullptr;
  live_[begin] = rounded;
  in_use_ += rounded;
  peak_ = std::max(peak_, in_use_);
  return first_ + begin;
}

bool MemoryBlock::free(void* address) {
  const std::lock_guard lock(guard_);
  const auto found = live_.find(static_cast<std::size_t>(static_cast<std::byte*>(address) - first_));
  if (found == live_.end()) return false;
  in_use_ -= found->second;
  live_.erase(found);
  return true;
}

std::uint64_t MemoryBlock::peak_bytes() const {
  const std::lock_guard lock(guard_);
  return peak_;
}

}  // namespace bantam
