// Internal: what stands behind BfcAllocator: the structure, the streams' frees, the source, the counters and the lock.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bantam/memory/allocation_trace.h"
#include "bantam/memory/allocator.h"
#include "bantam/memory/bfc_structure.h"
#include "bantam/memory/stream_frees.h"

namespace bantam {

struct BfcAllocator::Impl {
  Impl(std::unique_ptr<RegionSource> the_source, Device the_device, AllocatorOptions the_options,
       std::unique_ptr<StreamOracle> oracle);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void* allocate(std::size_t bytes, Stream stream, AllocationTag tag);
  void free(void* address, Stream stream);
  std::uint64_t trim();
  void set_limit(std::uint64_t limit_bytes);
  /// The live chunk at `address`; throws Error in the name of `call`.
  ChunkId live_chunk(const void* address, const char* call) const;
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

  mutable std::mutex mutex;  ///< held by the caller of everything here
  std::unique_ptr<RegionSource> source;
  const Device device;
  AllocatorOptions options;
  BfcStructure structure;
  StreamFrees frees;
  MemoryStats counters;  ///< all but what `stats` asks of the structure
  std::size_t next_region = 0;
  AllocationTrace* trace = nullptr;  ///< null: nothing is noted

 private:
  ChunkId find(std::size_t bytes, FreeState own, bool& source_refused);
  ChunkId find_run(std::size_t bytes, FreeState own);
  ChunkId find_by_waiting(std::size_t bytes, FreeState own, bool& source_refused);
  std::size_t first_region() const;
  std::uint64_t limit() const { return options.limit_bytes != 0 ? options.limit_bytes : ~std::uint64_t{0}; }
  std::size_t room() const;
  bool fits_after_releasing(std::size_t bytes, std::uint64_t releasable) const;
  bool extend(std::size_t bytes, bool& source_refused);
  void* acquire(std::size_t& size, std::size_t least);
  bool release_and_extend(std::size_t bytes, bool& source_refused);
  std::uint64_t release_idle_regions();
  void count_live(const Chunk& chunk);
  void count_free(const Chunk& chunk);
};

}  // namespace bantam
