// Internal: what stands behind BfcAllocator: the structure, the streams' frees, the supply, the counters and the lock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bantam/memory/allocation_trace.h"
#include "bantam/memory/allocator.h"
#include "bantam/memory/bfc_structure.h"
#include "bantam/memory/placement_arena.h"
#include "bantam/memory/spin_lock.h"
#include "bantam/memory/stream_frees.h"
#include "bantam/memory/supply.h"

namespace bantam {

struct BfcAllocator::Impl {
  Impl(std::unique_ptr<MemorySource> source, Device the_device, AllocatorOptions the_options,
       std::unique_ptr<StreamOracle> oracle);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void* allocate(std::size_t bytes, const Stream& stream, AllocationTag tag);
  void free(void* address, const Stream& stream);
  std::uint64_t trim();
  void set_limit(std::uint64_t limit_bytes);
  /// The live chunk at `address`; throws Error in the name of `call`.
  ChunkId live_chunk(const void* address, const char* call) const;
  // Of planned allocations: allocator_placement.cpp.
  bool reserve_pool(std::uint64_t bytes);
  bool reserve_arena(std::uint64_t bytes, Stream stream);
  bool release_arena();
  bool begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream);
  /// The live planned allocation at `address`, which lies in the arena; throws as `live_chunk` does.
  const PlacementArena::Placed& live_place(const void* address, const char* call) const;
  MemoryStats stats() const;
  std::vector<Holder> holders() const;
  std::uint64_t trimmable_bytes() const;
  std::vector<MemoryRegion> held_regions() const;
  /// Tells the trace (there is one, with room) of an allocation or free of `block`, after it was counted.
  template <class Block>
  void note_call(const Block& block, const Stream& stream, bool allocation) const noexcept {
    trace->note({.allocation = allocation,
                 .address = block.address,
                 .bytes = block.size,
                 .requested = block.requested,
                 .pool_bytes = counters.pool_bytes,
                 .tag = block.tag,
                 .stream = stream.id});
  }
  std::string check() const;

  mutable SpinLock mutex;  ///< held by the caller of everything here
  const Device device;
  AllocatorOptions options;
  BfcStructure structure;
  StreamFrees frees;
  PlacementArena arena;
  MemoryStats counters;  ///< all but what `stats` asks of the structure
  std::unique_ptr<Supply> supply;
  AllocationTrace* trace = nullptr;  ///< null: nothing is noted

 private:
  ChunkId find(std::size_t bytes, FreeState own, bool& source_refused);
  ChunkId usable(std::size_t bytes, FreeState own);
  ChunkId find_by_waiting(std::size_t bytes, FreeState own, bool& source_refused);
  /// The arena's chunk where it could be given up, else kNoChunk.
  ChunkId idle_arena() const { return arena.idle() ? arena.chunk() : kNoChunk; }
  bool arena_would_help(std::size_t bytes) const;
  void* place(std::size_t rounded, std::size_t bytes, AllocationTag tag);
  void free_placed(void* address, Stream stream);
  void depart();
  BfcStructure::Totals totals() const;
  void count_claimed();
  void count_live(std::uint64_t size, std::uint64_t requested, Category category);
  void count_free(std::uint64_t size, std::uint64_t requested, Category category);
};

}  // namespace bantam
