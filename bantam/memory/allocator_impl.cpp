// The allocator's policy: the order of attempts, growth under a hard limit, what is counted.
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

std::size_t floor_granule(std::uint64_t bytes) { return static_cast<std::size_t>(bytes / kGranule * kGranule); }

// Nothing where rounding up would wrap.
std::optional<std::size_t> round_up(std::size_t bytes) {
  if (bytes > kMostBytes - (kGranule - 1)) return std::nullopt;
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

BfcAllocator::Impl::Impl(std::unique_ptr<RegionSource> the_source, Device the_device, AllocatorOptions the_options,
                         std::unique_ptr<StreamOracle> oracle)
    : source(std::move(the_source)),
      device(the_device),
      options(std::move(the_options)),
      frees(structure, std::move(oracle)) {
  if (source == nullptr) throw Error(options.name + ": an allocator needs a source of regions");
  if (!options.growth && options.limit_bytes == 0)
    throw Error(options.name + ": without growth the whole limit is taken at once, so a limit is required");
  next_region = first_region();
  counters.limit_bytes = options.limit_bytes;
}

BfcAllocator::Impl::~Impl() {
  for (const auto& region : structure.regions()) source->release(reinterpret_cast<void*>(region.address), region.size);
}

std::size_t BfcAllocator::Impl::first_region() const {
  return std::max(kGranule, round_up(static_cast<std::size_t>(options.first_region_bytes)).value_or(kMostBytes / 2));
}

void* BfcAllocator::Impl::allocate(std::size_t bytes, Stream stream, AllocationTag tag) {
  const std::optional<std::size_t> rounded = round_up(bytes);
  bool source_refused = false;
  structure.reserve();
  if (trace != nullptr) trace->reserve();
  const FreeState own = frees.enter(stream);
  const ChunkId id = rounded ? find(*rounded, own, source_refused) : kNoChunk;
  if (id == kNoChunk) throw out_of_memory(options.name, {bytes, tag, source_refused}, stats(), holders());
  structure.allocate(id, *rounded, bytes, tag);
  const Chunk& chunk = structure.chunk(id);
  count_live(chunk);
  if (trace != nullptr) note_call(chunk, stream, true);
  return reinterpret_cast<void*>(chunk.address);
}

// The order of attempts. Each loop inside ends; each later step costs more than the one before.
ChunkId BfcAllocator::Impl::find(std::size_t bytes, FreeState own, bool& source_refused) {
  ChunkId id = structure.best_fit(bytes, own);
  if (id != kNoChunk) return id;
  if (frees.several()) {
    frees.poll();
    id = structure.best_fit(bytes, own);
    if (id == kNoChunk) id = find_run(bytes, own);
    if (id != kNoChunk) return id;
  }
  if (extend(bytes, source_refused)) return structure.best_fit(bytes, own);
  if (frees.sole_party_done() && release_and_extend(bytes, source_refused)) return structure.best_fit(bytes, own);
  return find_by_waiting(bytes, own, source_refused);
}

// Neighbours that `own` may use, but that lie apart because some are idle and some its own.
ChunkId BfcAllocator::Impl::find_run(std::size_t bytes, FreeState own) {
  if (own == kIdle) return kNoChunk;
  const auto run = structure.best_run(bytes, [own](const Chunk& c) { return c.state == kIdle || c.state == own; });
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
  if (run.first == kNoChunk && !fits_after_releasing(bytes, structure.bytes_without_live())) return kNoChunk;
  frees.wait_for_all();
  const ChunkId id = structure.best_fit(bytes, own);
  if (id != kNoChunk || !release_and_extend(bytes, source_refused)) return id;
  return structure.best_fit(bytes, own);
}

// What the limit leaves for a new region.
std::size_t BfcAllocator::Impl::room() const { return floor_granule(limit() - counters.pool_bytes); }

// Whether giving back `releasable` bytes of regions makes room for `bytes` under the limit.
bool BfcAllocator::Impl::fits_after_releasing(std::size_t bytes, std::uint64_t releasable) const {
  return releasable != 0 && bytes <= limit() - (counters.pool_bytes - releasable);
}

// Asks the source for `size` bytes, then for less and less down to `least`; sets `size` to what it gave.
void* BfcAllocator::Impl::acquire(std::size_t& size, std::size_t least) {
  void* address = source->acquire(size);
  while (address == nullptr && size > least) {
    size = std::max(least, floor_granule(size / 10 * 9));  // at least a granule less each time, so this ends
    address = source->acquire(size);
  }
  return address;
}

// Takes a new region of at least `bytes`; false, with nothing changed, where limit or source do not allow it.
bool BfcAllocator::Impl::extend(std::size_t bytes, bool& source_refused) {
  const std::size_t most = room();
  if (bytes > most) return false;
  structure.reserve();
  std::size_t size = options.growth ? std::min(std::max(next_region, bytes), most) : most;
  void* memory = acquire(size, options.growth ? bytes : size);
  source_refused = memory == nullptr;
  if (memory == nullptr) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address % kGranule != 0) {
    source->release(memory, size);
    throw Error(fmt::format("{}: source '{}' gave an address that is not aligned to {} bytes", options.name,
                            source->name(), kGranule));
  }
  structure.add_region(address, size);
  counters.pool_bytes += size;
  counters.peak_pool_bytes = std::max(counters.peak_pool_bytes, counters.pool_bytes);
  if (next_region <= kMostBytes / 4) next_region *= 2;
  return true;
}

// Gives wholly free regions back, but only where the limit then has room for the new one.
bool BfcAllocator::Impl::release_and_extend(std::size_t bytes, bool& source_refused) {
  std::uint64_t idle = 0;
  for (const auto& region : structure.regions()) idle += structure.is_idle(region) ? region.size : 0;
  if (!fits_after_releasing(bytes, idle)) return false;
  release_idle_regions();
  return extend(bytes, source_refused);
}

std::uint64_t BfcAllocator::Impl::release_idle_regions() {
  std::uint64_t released = 0;
  for (std::size_t i = structure.regions().size(); i-- > 0;) {
    if (!structure.is_idle(structure.regions()[i])) continue;
    const auto region = structure.remove_region(i);
    source->release(reinterpret_cast<void*>(region.address), region.size);
    released += region.size;
    counters.pool_bytes -= region.size;
  }
  // Growth starts again from what is left; else a program that trims each epoch would double its regions each time.
  std::size_t largest = 0;
  for (const auto& region : structure.regions()) largest = std::max(largest, region.size);
  if (released > 0)
    next_region = std::min(next_region, std::max(first_region(), std::min(largest, kMostBytes / 4) * 2));
  return released;
}

void BfcAllocator::Impl::free(void* address, Stream stream) {
  const ChunkId id = live_chunk(address, "free");
  const FreeState state = frees.enter(stream);
  if (trace != nullptr) trace->reserve();
  const std::uint64_t ticket = frees.ticket(state);  // may throw; nothing has changed yet
  const Chunk& chunk = structure.chunk(id);
  count_free(chunk);
  if (trace != nullptr) note_call(chunk, stream, false);
  structure.release(id, state, ticket);
}

std::uint64_t BfcAllocator::Impl::trim() {
  frees.wait_for_all();
  frees.forget();
  return release_idle_regions();
}

void BfcAllocator::Impl::set_limit(std::uint64_t limit_bytes) {
  if (limit_bytes == 0 && !options.growth) throw Error(options.name + ": without growth a limit is required");
  if (limit_bytes != 0 && limit_bytes < counters.pool_bytes) {
    const std::uint64_t held = counters.pool_bytes - structure.bytes_without_live();
    if (held > limit_bytes) throw limit_too_low(options.name, limit_bytes, held, stats());
    trim();
  }
  options.limit_bytes = counters.limit_bytes = limit_bytes;
}

void BfcAllocator::Impl::count_live(const Chunk& chunk) {
  counters.in_use_bytes += chunk.size;
  counters.requested_bytes += chunk.requested;
  counters.by_category[chunk.tag.category] += chunk.size;
  ++counters.live_allocations;
  ++counters.allocations;
  if (counters.in_use_bytes <= counters.peak_bytes) return;
  counters.peak_bytes = counters.in_use_bytes;
  counters.by_category_at_peak = counters.by_category;
}

void BfcAllocator::Impl::count_free(const Chunk& chunk) {
  counters.in_use_bytes -= chunk.size;
  counters.requested_bytes -= chunk.requested;
  counters.by_category[chunk.tag.category] -= chunk.size;
  --counters.live_allocations;
  ++counters.frees;
}

}  // namespace bantam
