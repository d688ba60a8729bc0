// Internal: reserves and releases memory for an allocator's structure, under the limit: by regions or by pages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/allocator/bfc_structure.h"

namespace bantam {

/// Owns the source. Keeps `counters.pool_bytes` (and its peak) equal to the bytes reserved from the source, and never
/// above the limit, at every moment. A call that fails or throws does not change the structure.
class Supply {
 public:
  /// `structure`, `options` and `counters` are the allocator's, and outlive this.
  Supply(BfcStructure& structure, const AllocatorOptions& options, MemoryStats& counters)
      : structure_(structure), options_(options), counters_(counters) {}
  virtual ~Supply() = default;
  Supply(const Supply&) = delete;
  Supply& operator=(const Supply&) = delete;

  /// Reserves memory so that `own` has `bytes` of contiguous free memory that it may use (idle or its own). False, with
  /// nothing changed, where limit or source do not allow it; `source_refused` tells which.
  virtual bool grow(std::size_t bytes, FreeState own, bool& source_refused) = 0;
  /// Reserves `bytes` more, rounded up to allocation units or pages, as one contiguous range; false, with nothing
  /// changed, where limit or source do not allow it.
  virtual bool reserve(std::uint64_t bytes) = 0;
  /// As `grow` after idle memory was released; does nothing unless the limit then has room. All idle memory must be
  /// unused by any work. False after the source refused: then idle memory may be gone.
  virtual bool release_and_grow(std::size_t bytes, FreeState own, bool& source_refused) = 0;
  /// Whether `release_and_grow` would have room under the limit if all free memory were idle; `also_free` is a live
  /// chunk that counts as free.
  virtual bool room_when_all_is_idle(std::size_t bytes, ChunkId also_free = kNoChunk) const = 0;
  /// The pool's bytes once all free memory is idle and released; `also_free` as above.
  virtual std::uint64_t reserved_by_live_bytes(ChunkId also_free = kNoChunk) const = 0;
  /// The bytes that `release_idle` would release now.
  virtual std::uint64_t idle_bytes() const = 0;
  /// Releases all idle memory; returns the bytes. No work may use it.
  virtual std::uint64_t release_idle() = 0;
  /// Releases idle memory until the pool is at most `pool_bytes` (more where only whole regions can be released: then
  /// as little as possible).
  virtual void release_down_to(std::uint64_t pool_bytes) = 0;
  /// The size of pages; 0: regions of any size.
  virtual std::size_t page_bytes() const { return 0; }
  /// "" or what is wrong with the regions.
  virtual std::string check() const { return ""; }

 protected:
  std::uint64_t limit() const { return options_.limit_bytes != 0 ? options_.limit_bytes : ~std::uint64_t{0}; }
  void count_taken(std::size_t bytes) {
    counters_.pool_bytes += bytes;
    if (counters_.pool_bytes > counters_.peak_pool_bytes) counters_.peak_pool_bytes = counters_.pool_bytes;
  }

  BfcStructure& structure_;
  const AllocatorOptions& options_;
  MemoryStats& counters_;
};

/// By regions or by pages, as the source is.
std::unique_ptr<Supply> make_supply(std::unique_ptr<MemorySource> source, BfcStructure& structure,
                                    const AllocatorOptions& options, MemoryStats& counters);

}  // namespace bantam
