// The allocator's policy: the order of attempts, what is counted.
#include "bantam/memory/allocator_impl.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator_report.h"

namespace bantam {
namespace {

constexpr std::size_t kGranule = BfcAllocator::kGranule;
constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max();

// Nothing where rounding up would wrap.
std::optional<std::size_t> round_up(std::size_t bytes) {
  if (bytes > kMostBytes - (kGranule - 1)) return std::nullopt;
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

BfcAllocator::Impl::Impl(std::unique_ptr<MemorySource> source, Device the_device, AllocatorOptions the_options,
                         std::unique_ptr<StreamOracle> oracle)
    : device(the_device), options(std::move(the_options)), frees(structure, std::move(oracle)) {
  if (source == nullptr) throw Error(options.name + ": an allocator needs a source of memory");
  if (!options.growth && options.limit_bytes == 0)
    throw Error(options.name + ": without growth the whole limit is taken at once, so a limit is required");
  supply = make_supply(std::move(source), structure, options, counters);
  counters.limit_bytes = options.limit_bytes;
}

void* BfcAllocator::Impl::allocate(std::size_t bytes, const Stream& stream, AllocationTag tag) {
  const std::optional<std::size_t> rounded = round_up(bytes);
  bool source_refused = false;
  if (trace != nullptr) trace->reserve();
  if (rounded && arena.follows(stream))
    if (void* placed = place(*rounded, bytes, tag); placed != nullptr) return placed;
  structure.reserve();
  const FreeState own = frees.enter(stream);
  ChunkId id = rounded ? find(*rounded, own, source_refused) : kNoChunk;
  if (id == kNoChunk && rounded && arena_would_help(*rounded) && release_arena())
    id = find(*rounded, own, source_refused);
  if (id == kNoChunk)
    throw out_of_memory(options.name, {bytes, tag, source_refused, supply->page_bytes()}, stats(), holders());
  structure.allocate(id, *rounded, bytes, tag);
  const Chunk& chunk = structure.chunk(id);
  count_live(chunk.size, bytes, tag.category);
  count_claimed();
  if (trace != nullptr) note_call(chunk, stream, true);
  return reinterpret_cast<void*>(chunk.address);
}

// The order of attempts. Each loop inside ends; each later step costs more than the one before.
ChunkId BfcAllocator::Impl::find(std::size_t bytes, FreeState own, bool& source_refused) {
  ChunkId id = structure.best_fit(bytes, own);
  if (id != kNoChunk) return id;
  if (frees.several()) {
    frees.poll();
    id = usable(bytes, own);
    if (id != kNoChunk) return id;
  }
  if (supply->grow(bytes, own, source_refused)) return usable(bytes, own);
  if (frees.sole_party_done() && supply->release_and_grow(bytes, own, source_refused)) return usable(bytes, own);
  return find_by_waiting(bytes, own, source_refused);
}

// The best fit; where there is none, neighbours that `own` may use, but that lie apart because some are idle and some
// its own.
ChunkId BfcAllocator::Impl::usable(std::size_t bytes, FreeState own) {
  const ChunkId id = structure.best_fit(bytes, own);
  if (id != kNoChunk || own == kIdle) return id;
  const auto run = structure.best_run_of(bytes, own);
  return run.first == kNoChunk ? kNoChunk : structure.fuse(run, own, frees.fresh_ticket(own));
}

// The memory is there, but other streams' work may still use it: the stream waits where it can, else the host.
ChunkId BfcAllocator::Impl::find_by_waiting(std::size_t bytes, FreeState own, bool& source_refused) {
  const ChunkId whole = structure.best_fit_of_any(bytes);
  const auto run = whole != kNoChunk ? BfcStructure::Run{whole, whole, structure.chunk(whole).size}
                                     : structure.best_run(bytes, [](const Chunk&) { return true; });
  if (run.first != kNoChunk && own != kIdle) {
    frees.make_wait(run, own);
    return structure.fuse(run, own, frees.fresh_ticket(own));
  }
  if (run.first == kNoChunk && !(frees.asynchronous() && supply->room_when_all_is_idle(bytes))) return kNoChunk;
  frees.wait_for_all();
  const ChunkId id = structure.best_fit(bytes, own);
  if (id != kNoChunk || !supply->release_and_grow(bytes, own, source_refused)) return id;
  return usable(bytes, own);
}

void BfcAllocator::Impl::free(void* address, const Stream& stream) {
  if (arena.contains(address)) return free_placed(address, stream);
  const ChunkId id = live_chunk(address, "free");
  const FreeState state = frees.enter(stream);
  if (trace != nullptr) trace->reserve();
  const std::uint64_t ticket = frees.ticket(state);  // may throw; nothing has changed yet
  const Chunk& chunk = structure.chunk(id);
  count_free(chunk.size, chunk.requested, chunk.tag.category);
  if (trace != nullptr) note_call(chunk, stream, false);
  structure.release(id, state, ticket);
}

std::uint64_t BfcAllocator::Impl::trim() {
  (void)release_arena();
  frees.wait_for_all();
  frees.forget();
  return supply->release_idle();
}

void BfcAllocator::Impl::set_limit(std::uint64_t limit_bytes) {
  if (limit_bytes == 0 && !options.growth) throw Error(options.name + ": without growth a limit is required");
  if (limit_bytes != 0 && limit_bytes < counters.pool_bytes) {
    const std::uint64_t held = supply->held_by_live_bytes(idle_arena());
    if (held > limit_bytes) throw limit_too_low(options.name, limit_bytes, held, stats());
    if (supply->held_by_live_bytes() > limit_bytes) (void)release_arena();
    frees.wait_for_all();
    frees.forget();
    supply->release_down_to(limit_bytes);
  }
  options.limit_bytes = counters.limit_bytes = limit_bytes;
}

void BfcAllocator::Impl::count_live(std::uint64_t size, std::uint64_t requested, Category category) {
  counters.in_use_bytes += size;
  counters.requested_bytes += requested;
  counters.by_category[category] += size;
  ++counters.live_allocations;
  ++counters.allocations;
  if (counters.in_use_bytes <= counters.peak_bytes) return;
  counters.peak_bytes = counters.in_use_bytes;
  counters.by_category_at_peak = counters.by_category;
}

void BfcAllocator::Impl::count_free(std::uint64_t size, std::uint64_t requested, Category category) {
  counters.in_use_bytes -= size;
  counters.requested_bytes -= requested;
  counters.by_category[category] -= size;
  --counters.live_allocations;
  ++counters.frees;
}

}  // namespace bantam
