// Walks the whole structure and states the first thing that is wrong: tiling, neighbours, bins, order, lists, map.
#include <fmt/core.h>

#include "bantam/memory/allocator/bfc_structure.h"

namespace bantam {

BfcStructure::Totals BfcStructure::totals() const {
  Totals sum;
  for (const Region& region : regions_) {
    sum.pool_bytes += region.size;
    for (ChunkId id = region.first; id != region.end; id = chunks_[id].next) {
      const Chunk& chunk = chunks_[id];
      if (chunk.kind == ChunkKind::free) {
        ++sum.free_chunks;
        sum.free_bytes += chunk.size;
      }
      if (chunk.kind != ChunkKind::live) continue;
      ++sum.live;
      sum.in_use_bytes += chunk.size;
      sum.requested_bytes += chunk.requested;
      sum.by_category[chunk.tag.category] += chunk.size;
    }
  }
  return sum;
}

std::string BfcStructure::check_region(const Region& region) const {
  std::uintptr_t at = region.address;
  ChunkId before = kNoChunk;
  for (ChunkId id = region.first; id != region.end; before = id, id = chunks_[id].next) {
    if (id == kNoChunk) return fmt::format("region at {:#x}: its end is not linked", region.address);
    const Chunk& chunk = chunks_[id];
    const std::string where = fmt::format("chunk {} at {:#x} (+{}): ", id, chunk.address, chunk.size);
    if (chunk.kind != ChunkKind::free && chunk.kind != ChunkKind::live)
      return where + "an unused record, or an end, lies in a region";
    if (chunk.prev != before) return where + "neighbours disagree";
    if (chunk.address != at) return where + fmt::format("gap or overlap, expected {:#x}", at);
    if (chunk.size == 0 || chunk.size % kAllocationUnit != 0 || chunk.address % kAllocationUnit != 0)
      return where + "not in granules";
    if (chunk.size > region.size - (at - region.address)) return where + "passes the region's end";
    const bool live = chunk.kind == ChunkKind::live;
    if (live &&
        (chunk.requested == 0 || chunk.requested > chunk.size || chunk.size - chunk.requested >= kAllocationUnit))
      return where + fmt::format("live, but {} bytes were requested", chunk.requested);
    if (live != (map_.find(chunk.address, address_of()) == id)) return where + "the address map disagrees";
    if (!live && before != kNoChunk && chunks_[before].kind == ChunkKind::free && chunks_[before].state == chunk.state)
      return where + "two free neighbours of equal state";
    at += chunk.size;
  }
  if (at != region.address + region.size) return fmt::format("region at {:#x}: its end is not tiled", region.address);
  const Chunk& end = chunks_[region.end];
  if (end.kind != ChunkKind::end || end.prev != before || end.next != kNoChunk)
    return fmt::format("region at {:#x}: its end disagrees with its last chunk", region.address);
  return "";
}

std::string BfcStructure::check_bins(FreeState state, std::uint64_t& seen) const {
  for (int bin = 0; bin < FreeBins::kBins; ++bin) {
    const ChunkId root = bins_[state].root(bin);
    if ((root != kNoChunk) != bins_[state].occupied(bin))
      return fmt::format("state {}, bin {}: the mask of occupied bins is wrong", state, bin);
    // In-order walk with a stack of its own: trees are shallow, but recursion would trust them to be so.
    std::vector<ChunkId> path;
    const Chunk* before = nullptr;
    for (ChunkId id = root; id != kNoChunk || !path.empty();) {
      for (; id != kNoChunk; id = chunks_[id].left) {
        if (path.size() > chunks_.size()) return fmt::format("state {}, bin {}: the tree has a circle", state, bin);
        path.push_back(id);
      }
      const Chunk& chunk = chunks_[path.back()];
      path.pop_back();
      const std::string where =
          fmt::format("state {}, bin {}, chunk at {:#x} (+{}): ", state, bin, chunk.address, chunk.size);
      if (chunk.kind != ChunkKind::free || chunk.state != state) return where + "not free in this state";
      if (FreeBins::bin_of(chunk.size) != bin) return where + "in the wrong bin";
      if (before != nullptr && !fits_before(*before, chunk)) return where + "out of order";
      for (const ChunkId child : {chunk.left, chunk.right})
        if (child != kNoChunk && priority_of(chunks_[child].address) > priority_of(chunk.address))
          return where + "heap order is broken";
      before = &chunk;
      if (++seen > chunks_.size()) return where + "more chunks in bins than records";
      id = chunk.right;
    }
  }
  return "";
}

std::string BfcStructure::check_deferred(FreeState state) const {
  ChunkId before = kNoChunk;
  std::uint64_t listed = 0, free_of_state = 0;
  for (ChunkId id = deferred_[state].oldest; id != kNoChunk; before = id, id = waits_[id].newer) {
    const Chunk& chunk = chunks_[id];
    if (chunk.kind != ChunkKind::free || chunk.state != state || waits_[id].older != before ||
        ++listed > chunks_.size())
      return fmt::format("state {}: chunk {} is wrong in the list of deferred frees", state, id);
    if (before != kNoChunk && waits_[before].ticket > waits_[id].ticket)
      return fmt::format("state {}: the list of deferred frees is out of order at chunk {}", state, id);
  }
  if (deferred_[state].newest != before) return fmt::format("state {}: the list's newest end is wrong", state);
  for (const Chunk& chunk : chunks_) free_of_state += chunk.kind == ChunkKind::free && chunk.state == state ? 1 : 0;
  if (listed != (state == kIdle ? 0 : free_of_state))
    return fmt::format("state {}: {} chunks listed as deferred, {} are", state, listed, free_of_state);
  return "";
}

std::string BfcStructure::check() const {
  std::uint64_t in_bins = 0, unused = 0, used = 0;
  for (const Region& region : regions_)
    if (std::string broken = check_region(region); !broken.empty()) return broken;
  for (FreeState state = 0; state < bins_.size(); ++state) {
    if (std::string broken = check_bins(state, in_bins); !broken.empty()) return broken;
    if (std::string broken = check_deferred(state); !broken.empty()) return broken;
  }
  const Totals sum = totals();
  if (in_bins != sum.free_chunks) return fmt::format("{} chunks in bins, {} are free", in_bins, sum.free_chunks);
  if (map_.size() != sum.live) return fmt::format("{} addresses in the map, {} chunks are live", map_.size(), sum.live);
  for (ChunkId id = recycled_; id != kNoChunk && unused <= chunks_.size(); id = chunks_[id].left) ++unused;
  for (const Chunk& chunk : chunks_) used += chunk.kind == ChunkKind::unused ? 0 : 1;
  const std::uint64_t in_regions = sum.free_chunks + sum.live + regions_.size();  // each has its end
  if (used + unused != chunks_.size() || used != in_regions)
    return fmt::format("{} records: {} unused, {} used, {} in regions", chunks_.size(), unused, used, in_regions);
  return "";
}

}  // namespace bantam
