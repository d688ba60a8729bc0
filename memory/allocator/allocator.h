// BfcAllocator: best fit with coalescing over one source of memory, with growth, a hard limit, tags and statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/memory/allocator/accounting.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/pages/region_source.h"

BANTAM_API_BEGIN
namespace bantam {

class AllocationTrace;
class BANTAM_INTERNAL PlacementPlan;
class BANTAM_INTERNAL StreamOracle;

/// How an allocator reserves memory from its source.
struct AllocatorOptions {
  /// Name in messages and reports, usually the device's.
  std::string name = "cpu";
  /// Most bytes reserved from the source at any moment, growth included; 0: no limit of ours.
  std::uint64_t limit_bytes = 0;
  /// true: memory is reserved on demand: pages, or regions that double from `first_region_bytes`. false: the whole
  /// limit at once, at the first allocation (a limit is then required).
  bool growth = true;
  std::uint64_t first_region_bytes = 2u << 20;  ///< of a RegionSource
};

/// A range reserved from the source.
struct MemoryRegion {
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;
};

/// All that an allocator can tell of one moment.
struct AllocatorSnapshot {
  MemoryStats stats;
  std::vector<Holder> holders;        ///< sums to stats.in_use_bytes
  std::vector<MemoryRegion> regions;  ///< by address; sums to stats.pool_bytes
  std::uint64_t trimmable_bytes = 0;  ///< what `trim` would release
};

/// A memory allocator for one device. All sizes are rounded up to 256 bytes; addresses are aligned to 256.
///
/// Frees are in stream order: memory freed on a stream is available at once to later work of the same stream; to
/// another stream when the freeing stream's work up to the free is done. The CPU counts as one more stream, whose work
/// is done when its call returns: host memory that a CUDA stream copies from is allocated on the CPU's stream and freed
/// on the CUDA one. A stream that freed memory must live until the allocator is destroyed or `trim` was called.
/// Thread-safe.
///
/// Algorithm: bins by size, chunks in a bin ordered by (size, address): the best fit, of equals the lowest address.
/// A chunk is split whenever 256 bytes or more remain, so that a live chunk is exactly its rounded request and bytes in
/// use depend on the requests alone. Free neighbours are merged. Where nothing fits, in this order: memory of other
/// streams whose work is done by now; new pages (of a PagedSource: where the fewest are needed) or a new region; the
/// same after idle pages, or wholly free regions, were released for it; memory of other streams, for which the stream
/// is made to wait on the device; and, before failing, the host waits for all frees. Only that last step blocks the
/// host (beside what the source's own calls do). By pages, an allocation fails only where the pages under live memory
/// and the request pass the limit, or the device has no more.
class BfcAllocator {
 public:
  /// Throws Error where `growth` is false without a limit.
  BfcAllocator(std::unique_ptr<MemorySource> source, Device device, AllocatorOptions options);
  /// With an oracle of its own for the order of streams: for tests.
  BfcAllocator(std::unique_ptr<MemorySource> source, Device device, AllocatorOptions options,
               std::unique_ptr<StreamOracle> oracle);
  /// Releases all memory, live or not. Work that uses it must be done.
  ~BfcAllocator();
  BfcAllocator(const BfcAllocator&) = delete;
  BfcAllocator& operator=(const BfcAllocator&) = delete;

  static constexpr std::size_t kAllocationUnit = 256;

  /// `bytes` bytes for work on `stream`. Null for zero bytes. Throws OutOfMemory (request, limit, in use, largest free,
  /// biggest holders); then no live allocation and no byte in use has changed. Free memory may then have been released
  /// to the source, but only where the source, not the limit, refused.
  void* allocate(std::size_t bytes, Stream stream, AllocationTag tag);

  /// Frees what `allocate` returned; null is allowed. `stream` is the one whose work used it last. Throws Error for an
  /// address that is not live here (foreign, interior, freed twice); then nothing has changed.
  void free(void* address, Stream stream);

  /// Releases idle pages (of a RegionSource: wholly free regions), an idle arena's too; returns the bytes. Live memory
  /// does not move. Waits for deferred stream-ordered frees.
  std::uint64_t trim();

  MemoryStats stats() const;
  /// Peak statistics start again from what is in use now.
  void reset_peak();
  /// Live allocations grouped by (owner, category), largest first.
  std::vector<Holder> holders() const;
  /// The bytes that `trim` would release now.
  std::uint64_t trimmable_bytes() const;
  /// Statistics, holders and regions of one moment, which agree with each other.
  AllocatorSnapshot snapshot() const;
  Device device() const;
  /// AllocatorOptions::name.
  const std::string& name() const;

  /// Raises or lowers the limit (0: none). Lowering it below the reserved bytes releases idle memory as far as needed,
  /// an idle arena last; throws OutOfMemory, changing nothing (the arena stays at its address), where live bytes do not
  /// allow it.
  void set_limit(std::uint64_t limit_bytes);

  /// Reserves memory ahead of its use: grows the pool to at least `bytes` by one contiguous range of the missing size
  /// (rounded up to pages). False, with nothing changed, where limit or source do not allow it.
  bool reserve_pool(std::uint64_t bytes);
  /// Sets `bytes` aside for planned allocations on `stream`, as one arena. There is one arena at a time:
  /// an idle one that is too small, or another stream's, is replaced. False where it is in use or there is no memory.
  /// An idle arena is released by `trim`, where a lower limit needs it, and when a request finds no other memory; not
  /// for a request that the limit forbids all the same, nor for an arena larger than the limit.
  bool reserve_arena(std::uint64_t bytes, Stream stream);
  /// Makes the arena free memory; false where something planned still lives in it.
  bool release_arena();
  /// Where the arena begins; null where there is none.
  const void* arena_address() const;
  /// ArenaHold's (internal): the arena, if it is idle and begins at `address` with `bytes` or more, for work on
  /// `stream`, stays until `let_go_of_arena`.
  bool hold_arena(const void* address, std::uint64_t bytes, Stream stream);
  void let_go_of_arena();
  /// PlacementScope's: follows `plan` from its first entry on; returns a number for it, or 0 where that cannot be (then
  /// nothing has changed but the count of departures).
  std::uint64_t begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream);
  /// Nothing where that plan is not followed any more.
  void end_placement(std::uint64_t placement);
  /// Whether that plan is being followed: not after a departure from it, also where another one has begun since.
  bool placing(std::uint64_t placement) const;

  /// Notes every later allocation and free in `trace` (AllocationTrace), which must live as long; null ends it.
  void set_trace(AllocationTrace* trace);
  /// The trace that calls are noted in; null: none.
  AllocationTrace* trace() const;
  /// Tells the trace, where there is one, what the program is at now. `phase` is a literal.
  void note_phase(const char* phase);

  /// Rounded size of a live allocation; throws Error for any other address.
  std::size_t allocated_bytes(const void* address) const;

  /// Checks every invariant of the structure (tiling, bins, order, neighbours, totals); returns "" or what is broken.
  /// For tests.
  std::string check_invariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
BANTAM_API_END
