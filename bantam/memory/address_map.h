// Internal: from the address of a live chunk to its record: an open-addressing hash whose size follows the live chunks,
// not the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/memory/chunk.h"

namespace bantam {

/// Linear probing, at most half full, removal by shifting back (no tombstones). Addresses are multiples of 256 and not
/// null.
class AddressMap {
 public:
  AddressMap() : slots_(kFirstSlots) {}

  /// Makes room for one more, so that the next `insert` takes no heap memory.
  void reserve_one() {
    if ((count_ + 1) * 2 > slots_.size()) grow();
  }
  /// Makes room for `count` in all.
  void reserve(std::size_t count) {
    while (count * 2 > slots_.size()) grow();
  }
  /// `address` is not in the map, and `reserve_one` was called.
  void insert(std::uintptr_t address, ChunkId chunk) {
    std::size_t at = home(address);
    while (slots_[at].address != 0) at = next(at);
    slots_[at] = {address, chunk};
    ++count_;
  }
  ChunkId find(std::uintptr_t address) const {
    if (address == 0) return kNoChunk;
    for (std::size_t at = home(address); slots_[at].address != 0; at = next(at))
      if (slots_[at].address == address) return slots_[at].chunk;
    return kNoChunk;
  }
  /// `address` is in the map.
  void erase(std::uintptr_t address) {
    std::size_t hole = home(address);
    while (slots_[hole].address != address) hole = next(hole);
    for (std::size_t at = next(hole); slots_[at].address != 0; at = next(at)) {
      // An entry may fill the hole unless its home lies (cyclically) behind the hole.
      const std::size_t mask = slots_.size() - 1;
      if (((at - home(slots_[at].address)) & mask) < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --count_;
  }
  std::size_t size() const { return count_; }

 private:
  struct Slot {
    std::uintptr_t address = 0;
    ChunkId chunk = kNoChunk;
  };
  static constexpr std::size_t kFirstSlots = 64;
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    count_ = 0;
    for (const Slot& slot : old)
      if (slot.address != 0) insert(slot.address, slot.chunk);
  }
  std::size_t home(std::uintptr_t address) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(address >> 8) * 0x9e3779b97f4a7c15ULL) >> shift_);
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }

  std::vector<Slot> slots_;
  int shift_ = 64 - 6;  // 64 minus log2 of the slots
  std::size_t count_ = 0;
};

}  // namespace bantam
