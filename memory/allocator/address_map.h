// Internal: from the address of a live chunk to its record: an open-addressing hash whose size follows the live chunks,
// not the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/memory/allocator/chunk.h"

namespace bantam {

/// Linear probing, removal by shifting back (no tombstones). A slot holds the chunk only: the caller supplies its
/// address, as `address_of(chunk)`, and reads that record next anyway. So slots are small, and the table is so sparse
/// (at most one slot in eight is used) that nearly every search ends at its first slot, as the branch predictor
/// expects. Addresses are multiples of 256.
class AddressMap {
 public:
  AddressMap() : slots_(kFirstSlots, kNoChunk) {}

  /// Makes room for `count` in all, so that as many can be inserted without heap memory.
  template <class AddressOf>
  void reserve(std::size_t count, const AddressOf& address_of) {
    while (count * kSlotsEach > slots_.size()) [[unlikely]] grow(address_of);
  }
  /// `address` is not in the map, and there is room.
  void insert(std::uintptr_t address, ChunkId chunk) {
    std::size_t at = home(address);
    while (slots_[at] != kNoChunk) [[unlikely]] at = next(at);
    slots_[at] = chunk;
    ++count_;
  }
  template <class AddressOf>
  ChunkId find(std::uintptr_t address, const AddressOf& address_of) const {
    for (std::size_t at = home(address);; at = next(at))
      if (const ChunkId chunk = slots_[at]; chunk == kNoChunk || address_of(chunk) == address) return chunk;
  }
  /// `chunk` is in the map, and `address` is its address.
  template <class AddressOf>
  void erase(std::uintptr_t address, ChunkId chunk, const AddressOf& address_of) {
    std::size_t hole = home(address);
    while (slots_[hole] != chunk) [[unlikely]] hole = next(hole);
    for (std::size_t at = next(hole); slots_[at] != kNoChunk; at = next(at)) {
      // An entry may fill the hole unless its home lies (cyclically) after the hole.
      const std::size_t mask = slots_.size() - 1;
      if (((at - home(address_of(slots_[at]))) & mask) < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = kNoChunk;
    --count_;
  }
  std::size_t size() const { return count_; }

 private:
  static constexpr std::size_t kFirstSlots = 256;
  static constexpr std::size_t kSlotsEach = 8;

  template <class AddressOf>
  [[gnu::noinline]] void grow(const AddressOf& address_of) {
    std::vector<ChunkId> old(slots_.size() * 2, kNoChunk);
    old.swap(slots_);
    --shift_;
    count_ = 0;
    for (const ChunkId chunk : old)
      if (chunk != kNoChunk) insert(address_of(chunk), chunk);
  }
  std::size_t home(std::uintptr_t address) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(address >> 8) * 0x9e3779b97f4a7c15ULL) >> shift_);
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }

  std::vector<ChunkId> slots_;
  int shift_ = 64 - 8;  // 64 minus log2 of the slots
  std::size_t count_ = 0;
};

}  // namespace bantam
