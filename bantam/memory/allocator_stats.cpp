// What an allocator can tell: statistics, holders, wrong addresses, and whether its books agree with its chunks.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator_impl.h"

namespace bantam {

ChunkId BfcAllocator::Impl::live_chunk(const void* address, const char* call) const {
  if (const ChunkId live = structure.find_live(address); live != kNoChunk) return live;
  std::string why = "it was not allocated here (or its region was given back)";
  if (const ChunkId id = structure.containing(address); id != kNoChunk) {
    const Chunk& chunk = structure.chunk(id);
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - chunk.address;
    if (chunk.kind == ChunkKind::live)
      why = fmt::format("it lies {} bytes inside the live allocation at {:#x}", offset, chunk.address);
    else
      why = "it lies in free memory (freed already?)";
  }
  throw Error(
      fmt::format("{} of {} on {}: not the address of a live allocation: {}", call, address, options.name, why));
}

MemoryStats BfcAllocator::Impl::stats() const {
  MemoryStats now = counters;
  now.largest_free_bytes = structure.largest_free();
  now.free_chunks = structure.free_chunks();
  now.regions = structure.regions().size();
  return now;
}

std::vector<Holder> BfcAllocator::Impl::holders() const {
  std::map<std::pair<std::string, Category>, Holder> groups;
  const auto add = [&groups](std::size_t size, AllocationTag tag) {
    const std::string owner = tag.owner == nullptr ? "" : tag.owner;
    Holder& holder = groups.try_emplace({owner, tag.category}, Holder{owner, tag.category}).first->second;
    holder.bytes += size;
    ++holder.allocations;
  };
  structure.for_each_live([&](const Chunk& chunk) {
    if (!arena.contains(reinterpret_cast<const void*>(chunk.address))) add(chunk.size, chunk.tag);
  });
  arena.for_each_live([&](const PlacementArena::Placed& placed) { add(placed.size, placed.tag); });
  std::vector<Holder> sorted;
  for (auto& [key, holder] : groups) sorted.push_back(std::move(holder));
  std::ranges::stable_sort(sorted, [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  return sorted;
}

// What the structure holds live, with the planned allocations in place of the arena's chunk.
BfcStructure::Totals BfcAllocator::Impl::totals() const {
  BfcStructure::Totals sum = structure.totals();
  if (arena.chunk() == kNoChunk) return sum;
  const Chunk& whole = structure.chunk(arena.chunk());
  --sum.live;
  sum.in_use_bytes -= whole.size;
  sum.requested_bytes -= whole.requested;
  sum.by_category[whole.tag.category] -= whole.size;
  arena.for_each_live([&sum](const PlacementArena::Placed& placed) {
    ++sum.live;
    sum.in_use_bytes += placed.size;
    sum.requested_bytes += placed.requested;
    sum.by_category[placed.tag.category] += placed.size;
  });
  return sum;
}

// As `trim` does: an idle arena goes, and it waits for all frees, so that only what is live holds memory.
std::uint64_t BfcAllocator::Impl::trimmable_bytes() const {
  return counters.pool_bytes - supply->held_by_live_bytes(idle_arena());
}

std::vector<MemoryRegion> BfcAllocator::Impl::held_regions() const {
  std::vector<MemoryRegion> held;
  for (const auto& region : structure.regions()) held.push_back({region.address, region.size});
  std::ranges::sort(held, {}, &MemoryRegion::address);
  return held;
}

std::string BfcAllocator::Impl::check() const {
  if (std::string broken = structure.check(); !broken.empty()) return broken;
  if (std::string broken = supply->check(); !broken.empty()) return broken;
  if (std::string broken = arena.check(counters.arena_in_use_bytes); !broken.empty()) return broken;
  const BfcStructure::Totals sum = totals();
  const MemoryStats now = stats();
  const auto differs = [](const char* what, std::uint64_t counted, std::uint64_t found) {
    return counted == found ? std::string() : fmt::format("{}: {} counted, {} found", what, counted, found);
  };
  for (const std::string& broken :
       {differs("bytes in use", now.in_use_bytes, sum.in_use_bytes),
        differs("requested bytes", now.requested_bytes, sum.requested_bytes),
        differs("pool bytes", now.pool_bytes, sum.pool_bytes), differs("free chunks", now.free_chunks, sum.free_chunks),
        differs("live allocations", now.live_allocations, sum.live),
        differs("allocations less frees", now.allocations - now.frees, sum.live),
        differs("bytes by category", now.by_category.total(), now.in_use_bytes),
        differs("bytes by category at the peak", now.by_category_at_peak.total(), now.peak_bytes)})
    if (!broken.empty()) return broken;
  if (now.by_category.bytes != sum.by_category.bytes) return "bytes by category are not those found";
  if (now.limit_bytes != 0 && now.pool_bytes > now.limit_bytes) return "the pool passes the limit";
  if (now.arena_bytes != arena.bytes()) return "the arena's bytes are not those counted";
  if (sum.free_bytes != now.free_bytes()) return "in use, free and the arena's idle bytes are not the pool";
  if (now.in_use_bytes + now.arena_idle_bytes() > now.peak_claimed_bytes) return "more is claimed than at the peak";
  if (now.in_use_bytes > now.peak_bytes || now.pool_bytes > now.peak_pool_bytes) return "more is held than at the peak";
  return "";
}

}  // namespace bantam
