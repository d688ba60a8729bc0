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
  structure.for_each_live([&](const Chunk& chunk) {
    const std::string owner = chunk.tag.owner == nullptr ? "" : chunk.tag.owner;
    Holder& holder = groups.try_emplace({owner, chunk.tag.category}, Holder{owner, chunk.tag.category}).first->second;
    holder.bytes += chunk.size;
    ++holder.allocations;
  });
  std::vector<Holder> sorted;
  for (auto& [key, holder] : groups) sorted.push_back(std::move(holder));
  std::ranges::stable_sort(sorted, [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  return sorted;
}

// As `trim` does: it waits for all frees first, so a region goes back unless something in it is live.
std::uint64_t BfcAllocator::Impl::trimmable_bytes() const { return structure.bytes_without_live(); }

std::vector<MemoryRegion> BfcAllocator::Impl::held_regions() const {
  std::vector<MemoryRegion> held;
  for (const auto& region : structure.regions()) held.push_back({region.address, region.size});
  std::ranges::sort(held, {}, &MemoryRegion::address);
  return held;
}

std::string BfcAllocator::Impl::check() const {
  if (std::string broken = structure.check(); !broken.empty()) return broken;
  const BfcStructure::Totals sum = structure.totals();
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
  if (now.in_use_bytes > now.peak_bytes || now.pool_bytes > now.peak_pool_bytes) return "more is held than at the peak";
  return "";
}

}  // namespace bantam
