// Chunks, their neighbours, and the lists of chunks whose stream may still be using them.
#include "bantam/memory/allocator/bfc_structure.h"

#include <algorithm>

namespace bantam {

void BfcStructure::make_room(std::size_t calls) {
  const std::size_t chunks = std::max<std::size_t>(64, (chunks_.size() + calls) * 2);
  waits_.reserve(chunks);  // first: room for a chunk is room for its deferred free
  chunks_.reserve(chunks);
  regions_.reserve(std::max<std::size_t>(8, (regions_.size() + calls) * 2));
}

void BfcStructure::reserve_states(std::size_t states) {
  if (bins_.size() < states) bins_.resize(states);
  if (deferred_.size() < states) deferred_.resize(states);
}

ChunkId BfcStructure::new_record() {
  chunks_.emplace_back();
  waits_.emplace_back();
  return static_cast<ChunkId>(chunks_.size() - 1);
}

void BfcStructure::enter_list(ChunkId id, FreeState state, std::uint64_t ticket, ChunkId after) {
  DeferredFree& wait = waits_[id];
  DeferredFrees& list = deferred_[state];
  wait.ticket = ticket;
  wait.older = after == kNoChunk ? list.newest : after;
  wait.newer = wait.older == kNoChunk ? kNoChunk : waits_[wait.older].newer;
  (wait.older == kNoChunk ? list.oldest : waits_[wait.older].newer) = id;
  (wait.newer == kNoChunk ? list.newest : waits_[wait.newer].older) = id;
}

void BfcStructure::leave_list(ChunkId id) {
  const DeferredFree& wait = waits_[id];
  DeferredFrees& list = deferred_[chunks_[id].state];
  (wait.older == kNoChunk ? list.oldest : waits_[wait.older].newer) = wait.newer;
  (wait.newer == kNoChunk ? list.newest : waits_[wait.newer].older) = wait.older;
}

// Joins the next chunk to `id`. Neither is in a bin.
void BfcStructure::absorb_next(ChunkId id) {
  Chunk& chunk = chunks_[id];
  const ChunkId gone = chunk.next;
  chunk.size += chunks_[gone].size;
  chunk.next = chunks_[gone].next;
  if (chunk.next != kNoChunk) chunks_[chunk.next].prev = id;
  recycle(gone);
}

// Enters a chunk that is in no bin as free, merged with its neighbours of equal state; returns the merged chunk.
ChunkId BfcStructure::make_free(ChunkId id, FreeState state, std::uint64_t ticket) {
  const auto joins = [&](ChunkId other) {
    return other != kNoChunk && chunks_[other].kind == ChunkKind::free && chunks_[other].state == state;
  };
  if (const ChunkId next = chunks_[id].next; joins(next)) {
    erase_free(next);
    absorb_next(id);
  }
  if (const ChunkId prev = chunks_[id].prev; joins(prev)) {
    erase_free(prev);
    absorb_next(prev);
    id = prev;
  }
  insert_free(id, state, ticket, kNoChunk);
  return id;
}

void BfcStructure::add_region(std::uintptr_t address, std::size_t bytes) {
  const ChunkId id = new_chunk(address, bytes);
  const ChunkId end = new_end();
  link(id, end);
  insert_free(id, kIdle, 0, kNoChunk);
  regions_.push_back({address, bytes, id, end});
}

BfcStructure::Region BfcStructure::remove_region(std::size_t index) {
  const Region region = regions_[index];
  erase_free(region.first);
  recycle(region.first);
  recycle(region.end);
  regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(index));
  return region;
}

// The first region that begins above `address`, of regions by address.
std::vector<BfcStructure::Region>::iterator BfcStructure::region_after(std::uintptr_t address) {
  return std::upper_bound(regions_.begin(), regions_.end(), address,
                          [](std::uintptr_t at, const Region& region) { return at < region.address; });
}

void BfcStructure::add_pages(std::uintptr_t address, std::size_t bytes) {
  const ChunkId id = new_chunk(address, bytes);
  const auto right = region_after(address);
  const auto left = right == regions_.begin() ? regions_.end() : std::prev(right);
  const bool touches_right = right != regions_.end() && right->address == address + bytes;
  const bool touches_left = left != regions_.end() && left->address + left->size == address;
  if (touches_left) {
    link(chunks_[left->end].prev, id);
    left->size += bytes;
  }
  const ChunkId end = touches_right ? right->end : touches_left ? left->end : new_end();
  link(id, touches_right ? right->first : end);
  if (touches_left && touches_right) {
    recycle(left->end);
    left->size += right->size;
    left->end = end;
    regions_.erase(right);
  } else if (touches_right) {
    *right = {address, bytes + right->size, id, end};
  } else if (!touches_left) {
    regions_.insert(right, {address, bytes, id, end});
  }
  make_free(id, kIdle, 0);
}

void BfcStructure::remove_pages(ChunkId id, std::uintptr_t address, std::size_t bytes) {
  erase_free(id);
  const Chunk whole = chunks_[id];
  const std::uintptr_t end = address + bytes;
  const std::size_t head = address - whole.address, tail = whole.address + whole.size - end;
  const auto region = std::prev(region_after(address));
  const std::uintptr_t region_end = region->address + region->size;
  const bool keeps_left = region->address < address, keeps_right = end < region_end;
  ChunkId after = whole.next;  // the first chunk after the removed range, or the region's end
  if (tail > 0) {
    after = new_chunk(end, tail);
    link(after, whole.next);
  }
  link(kNoChunk, after);
  chunks_[id].size = head;
  const ChunkId left_end = keeps_left && keeps_right ? new_end() : region->end;
  if (keeps_left) link(head > 0 ? id : whole.prev, left_end);
  if (head > 0)
    insert_free(id, kIdle, 0, kNoChunk);
  else
    recycle(id);
  if (tail > 0) insert_free(after, kIdle, 0, kNoChunk);

  const Region right{end, region_end - end, after, region->end};
  if (keeps_left) *region = {region->address, address - region->address, region->first, left_end};
  if (keeps_left && keeps_right) {
    regions_.insert(std::next(region), right);
  } else if (keeps_right) {
    *region = right;
  } else if (!keeps_left) {
    recycle(region->end);
    regions_.erase(region);
  }
}

bool BfcStructure::is_idle(const Region& region) const {
  const Chunk& first = chunks_[region.first];
  return first.kind == ChunkKind::free && first.state == kIdle && first.size == region.size;
}

std::uint64_t BfcStructure::bytes_without_live(ChunkId also_free) const {
  std::uint64_t bytes = 0;
  for (const Region& region : regions_) {
    ChunkId id = region.first;
    while (chunks_[id].kind == ChunkKind::free || id == also_free) id = chunks_[id].next;
    if (id == region.end) bytes += region.size;
  }
  return bytes;
}

ChunkId BfcStructure::better_fit(ChunkId a, ChunkId b) const {
  if (a == kNoChunk || b == kNoChunk) return a == kNoChunk ? b : a;
  return fits_before(chunks_[b], chunks_[a]) ? b : a;
}

ChunkId BfcStructure::best_fit_of_any(std::size_t bytes) const {
  ChunkId best = kNoChunk;
  for (const FreeBins& bins : bins_) best = better_fit(best, bins.best_fit(chunks_, bytes));
  return best;
}

BfcStructure::Run BfcStructure::best_run(std::size_t bytes, const std::function<bool(const Chunk&)>& eligible) const {
  Run best;
  for (const Region& region : regions_) {
    Run run;
    for (ChunkId id = region.first; id != kNoChunk; id = chunks_[id].next) {  // a region's end ends the last run
      if (chunks_[id].kind == ChunkKind::free && eligible(chunks_[id])) {
        run = {run.first == kNoChunk ? id : run.first, id, run.bytes + chunks_[id].size};
      } else {
        if (better_run(run, best, bytes)) best = run;
        run = {};
      }
    }
  }
  return best;
}

BfcStructure::Run BfcStructure::best_run_of(std::size_t bytes, FreeState own) const {
  const auto joins = [&](ChunkId id) {
    return id != kNoChunk && chunks_[id].kind == ChunkKind::free &&
           (chunks_[id].state == kIdle || chunks_[id].state == own);
  };
  Run best;
  for (ChunkId id = deferred_[own].oldest; id != kNoChunk; id = waits_[id].newer) {
    // Neighbours of equal state are merged, so what lies left of it and joins is idle, and before that its own again.
    ChunkId first = id;
    if (const ChunkId left = chunks_[id].prev; joins(left)) {
      if (joins(chunks_[left].prev)) continue;  // the run is walked from the leftmost of its own
      first = left;
    }
    Run run{first, first, 0};
    for (ChunkId at = first; joins(at); at = chunks_[at].next) run = {first, at, run.bytes + chunks_[at].size};
    if (better_run(run, best, bytes)) best = run;
  }
  return best;
}

bool BfcStructure::better_run(const Run& run, const Run& best, std::size_t bytes) const {
  if (run.first == kNoChunk || run.bytes < bytes) return false;
  return best.first == kNoChunk || run.bytes < best.bytes ||
         (run.bytes == best.bytes && chunks_[run.first].address < chunks_[best.first].address);
}

ChunkId BfcStructure::fuse(const Run& run, FreeState state, std::uint64_t ticket) {
  erase_free(run.first);
  for (ChunkId absorbed = kNoChunk; absorbed != run.last && run.first != run.last;) {
    absorbed = chunks_[run.first].next;
    erase_free(absorbed);
    absorb_next(run.first);
  }
  return make_free(run.first, state, ticket);
}

void BfcStructure::allocate(ChunkId id, std::size_t bytes, std::size_t requested, AllocationTag tag) {
  if (chunks_[id].size - bytes >= kAllocationUnit) {
    const ChunkId rest = new_chunk(chunks_[id].address + bytes, chunks_[id].size - bytes);
    Chunk& chunk = chunks_[id];
    link(rest, chunk.next);
    link(id, rest);
    const FreeState state = chunk.state;
    insert_free(rest, state, state == kIdle ? 0 : ticket(id), state == kIdle ? kNoChunk : id);
    erase_free(id);
    chunk.size = bytes;
  } else {
    erase_free(id);
  }
  Chunk& chunk = chunks_[id];
  chunk.kind = ChunkKind::live;
  chunk.requested = requested;
  chunk.tag = tag;
  map_.insert(chunk.address, id);
}

void BfcStructure::release(ChunkId id, FreeState state, std::uint64_t ticket) {
  map_.erase(chunks_[id].address, id, address_of());
  make_free(id, state, ticket);
}

void BfcStructure::settle(FreeState state, std::uint64_t ticket) {
  for (ChunkId id = deferred_[state].oldest; id != kNoChunk && waits_[id].ticket <= ticket;
       id = deferred_[state].oldest) {
    erase_free(id);
    make_free(id, kIdle, 0);
  }
}

void BfcStructure::unsettle(FreeState state, std::uint64_t ticket) {
  for (const Region& region : regions_) {
    for (ChunkId id = region.first; id != region.end; id = chunks_[id].next) {
      if (chunks_[id].kind != ChunkKind::free || chunks_[id].state != kIdle) continue;
      erase_free(id);
      id = make_free(id, state, ticket);
    }
  }
}

std::size_t BfcStructure::largest_free() const {
  std::size_t largest = 0;
  for (const FreeBins& bins : bins_)
    if (const ChunkId id = bins.largest(chunks_); id != kNoChunk) largest = std::max(largest, chunks_[id].size);
  return largest;
}

std::size_t BfcStructure::free_around(ChunkId id) const {
  const auto free = [&](ChunkId at) { return at != kNoChunk && chunks_[at].kind == ChunkKind::free; };
  std::size_t bytes = chunks_[id].size;
  for (ChunkId at = chunks_[id].prev; free(at); at = chunks_[at].prev) bytes += chunks_[at].size;
  for (ChunkId at = chunks_[id].next; free(at); at = chunks_[at].next) bytes += chunks_[at].size;
  return bytes;
}

ChunkId BfcStructure::containing(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Region& region : regions_) {
    if (at < region.address || at - region.address >= region.size) continue;
    ChunkId id = region.first;
    while (at - chunks_[id].address >= chunks_[id].size) id = chunks_[id].next;
    return id;
  }
  return kNoChunk;
}

void BfcStructure::for_each_live(const std::function<void(const Chunk&)>& visit) const {
  for (const Region& region : regions_)
    for (ChunkId id = region.first; id != region.end; id = chunks_[id].next)
      if (chunks_[id].kind == ChunkKind::live) visit(chunks_[id]);
}

}  // namespace bantam
