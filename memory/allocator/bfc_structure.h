// Internal: the chunks of an allocator as a pure data structure: split, merge, best fit. No lock, no device, no limit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bantam/memory/allocator/address_map.h"
#include "bantam/memory/allocator/chunk.h"
#include "bantam/memory/allocator/free_bins.h"

namespace bantam {

/// Regions tiled by chunks. A chunk is split whenever at least one allocation unit remains, so a live chunk is exactly
/// its rounded request: no waste beyond rounding (255 bytes), and the bytes in use depend on the requests only, never
/// on what was freed before. Free neighbours of equal state are always merged. The left one's record survives, so a
/// region's first chunk never changes.
class BfcStructure {
 public:
  static constexpr std::size_t kAllocationUnit = FreeBins::kAllocationUnit;

  struct Region {
    std::uintptr_t address = 0;
    std::size_t size = 0;
    ChunkId first = kNoChunk;
    ChunkId end = kNoChunk;  ///< a chunk of ChunkKind::end, whose `prev` is the last chunk
  };
  /// Neighbouring free chunks first … last, of several states.
  struct Run {
    ChunkId first = kNoChunk;
    ChunkId last = kNoChunk;
    std::size_t bytes = 0;
  };
  /// Sums over all chunks, found by walking them.
  struct Totals {
    std::uint64_t in_use_bytes = 0, requested_bytes = 0, pool_bytes = 0, free_bytes = 0, free_chunks = 0, live = 0;
    CategoryBytes by_category;
  };

  /// Allocates the heap memory that the next `calls` of `add_region`, `add_pages`, `remove_pages`, `allocate` or
  /// `release` can need, so that those cannot fail half-way.
  void reserve(std::size_t calls = 1) {
    // A region's first chunk and its end; or the rest of a split chunk, and the end between.
    if (chunks_.capacity() - chunks_.size() < 2 * calls || regions_.capacity() - regions_.size() < calls) [[unlikely]]
      make_room(calls);
    map_.reserve(map_.size() + 1, address_of());
  }
  /// Makes states 0 … `states` - 1 known.
  void reserve_states(std::size_t states);

  /// A new region, free and idle. `address` is aligned to, `bytes` a multiple of, the allocation unit.
  void add_region(std::uintptr_t address, std::size_t bytes);
  /// Removes regions()[index], which is one free chunk.
  Region remove_region(std::size_t index);
  /// Regions in the order they were added; where memory comes by pages, by address.
  const std::vector<Region>& regions() const { return regions_; }

  // Memory by pages: regions are then sorted by address, never touch each other, and grow, join and come apart.
  /// Memory that overlaps no region, free and idle; regions that it touches are joined with it.
  void add_pages(std::uintptr_t address, std::size_t bytes);
  /// Removes an address range from an idle chunk; the parts of its region on both sides become regions of their own.
  void remove_pages(ChunkId id, std::uintptr_t address, std::size_t bytes);

  /// Whether a region is one idle chunk, and so can be released now.
  bool is_idle(const Region& region) const;
  /// Bytes of regions without live chunks (beside `also_free`), whatever the free chunks' states.
  std::uint64_t bytes_without_live(ChunkId also_free = kNoChunk) const;

  /// The best fit for `bytes` (rounded) among idle chunks and those of `own`.
  ChunkId best_fit(std::size_t bytes, FreeState own) const {
    const ChunkId idle = bins_[kIdle].best_fit(chunks_, bytes);
    return own == kIdle ? idle : better_fit(idle, bins_[own].best_fit(chunks_, bytes));
  }
  /// The best fit among all free chunks, whoever may use them.
  ChunkId best_fit_of_any(std::size_t bytes) const;
  /// The smallest maximal run of free chunks accepted by `eligible` that holds `bytes`; of equals the lowest address.
  /// Walks all chunks.
  Run best_run(std::size_t bytes, const std::function<bool(const Chunk&)>& eligible) const;
  /// As `best_run` of chunks that are idle or of `own` (not kIdle), where no single one holds `bytes`. Walks only runs
  /// with a chunk of `own`.
  Run best_run_of(std::size_t bytes, FreeState own) const;
  /// Makes a run one free chunk of `state`.
  ChunkId fuse(const Run& run, FreeState state, std::uint64_t ticket);

  /// Makes the first `bytes` of a free chunk live; the rest stays free in its state.
  void allocate(ChunkId id, std::size_t bytes, std::size_t requested, AllocationTag tag);
  /// The live chunk that begins at `address`, or kNoChunk.
  ChunkId find_live(const void* address) const {
    return map_.find(reinterpret_cast<std::uintptr_t>(address), address_of());
  }
  /// Makes a live chunk free. `ticket` is at least that of every earlier free of the same state.
  void release(ChunkId id, FreeState state, std::uint64_t ticket);
  /// Makes free chunks of `state` up to `ticket` idle.
  void settle(FreeState state, std::uint64_t ticket);
  /// Makes all idle chunks free in `state` instead.
  void unsettle(FreeState state, std::uint64_t ticket);
  bool has_deferred(FreeState state) const { return deferred_[state].oldest != kNoChunk; }

  const Chunk& chunk(ChunkId id) const { return chunks_[id]; }
  /// Which free of its stream made a chunk free, whose state is not kIdle.
  std::uint64_t ticket(ChunkId id) const { return waits_[id].ticket; }
  std::size_t largest_free() const;
  /// The length of the contiguous free memory, of any state, around the live chunk `id`, itself included.
  std::size_t free_around(ChunkId id) const;
  std::uint64_t free_chunks() const { return free_chunks_; }
  /// The chunk that `address` lies in, or kNoChunk. Walks chunks: for messages.
  ChunkId containing(const void* address) const;
  void for_each_live(const std::function<void(const Chunk&)>& visit) const;
  Totals totals() const;
  /// "" or the first broken invariant.
  std::string check() const;

 private:
  struct DeferredFrees {
    ChunkId oldest = kNoChunk;
    ChunkId newest = kNoChunk;
  };

  struct AddressOf {
    const std::vector<Chunk>& chunks;
    std::uintptr_t operator()(ChunkId id) const { return chunks[id].address; }
  };

  AddressOf address_of() const { return {chunks_}; }
  /// The better of two, of which each may be kNoChunk.
  ChunkId better_fit(ChunkId a, ChunkId b) const;
  void make_room(std::size_t calls);
  // Functions that every call is made of are defined here, to be inlined: the calls would cost more than the work.
  ChunkId new_chunk(std::uintptr_t address, std::size_t bytes) {
    ChunkId id = recycled_;
    if (id != kNoChunk) [[likely]]
      recycled_ = chunks_[id].left;
    else
      id = new_record();
    Chunk& chunk = chunks_[id];
    chunk.address = address;
    chunk.size = bytes;
    chunk.prev = chunk.next = kNoChunk;
    return id;
  }
  void recycle(ChunkId id) {
    chunks_[id].kind = ChunkKind::unused;
    chunks_[id].left = recycled_;
    recycled_ = id;
  }
  /// Either may be kNoChunk: the other is then at an end.
  void link(ChunkId left, ChunkId right) {
    if (left != kNoChunk) chunks_[left].next = right;
    if (right != kNoChunk) chunks_[right].prev = left;
  }
  /// Enters a chunk in its bin and, unless idle, in its state's list after `after` (kNoChunk: at the newest end).
  void insert_free(ChunkId id, FreeState state, std::uint64_t ticket, ChunkId after) {
    Chunk& chunk = chunks_[id];
    chunk.kind = ChunkKind::free;
    chunk.state = state;
    ++free_chunks_;
    bins_[state].insert(chunks_, id);
    if (state != kIdle) [[unlikely]]
      enter_list(id, state, ticket, after);
  }
  void erase_free(ChunkId id) {
    const FreeState state = chunks_[id].state;
    --free_chunks_;
    bins_[state].erase(chunks_, id);
    if (state != kIdle) [[unlikely]]
      leave_list(id);
  }
  ChunkId new_end() {
    const ChunkId id = new_chunk(0, 0);
    chunks_[id].kind = ChunkKind::end;
    return id;
  }
  ChunkId new_record();
  bool better_run(const Run& run, const Run& best, std::size_t bytes) const;
  std::vector<Region>::iterator region_after(std::uintptr_t address);
  void enter_list(ChunkId id, FreeState state, std::uint64_t ticket, ChunkId after);
  void leave_list(ChunkId id);
  ChunkId make_free(ChunkId id, FreeState state, std::uint64_t ticket);
  void absorb_next(ChunkId id);

  std::string check_region(const Region& region) const;
  std::string check_bins(FreeState state, std::uint64_t& seen) const;
  std::string check_deferred(FreeState state) const;

  std::vector<Chunk> chunks_;
  std::vector<DeferredFree> waits_;  // by chunk
  ChunkId recycled_ = kNoChunk;
  std::vector<Region> regions_;
  std::vector<FreeBins> bins_{1};           // by state
  std::vector<DeferredFrees> deferred_{1};  // by state; kIdle's stays empty
  AddressMap map_;
  std::uint64_t free_chunks_ = 0;
};

}  // namespace bantam
