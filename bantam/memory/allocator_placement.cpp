// The allocator's side of placement: the arena's memory, planned allocations and their frees.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocation_trace.h"
#include "bantam/memory/allocator_impl.h"

namespace bantam {

bool BfcAllocator::reserve_pool(std::uint64_t bytes) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->reserve_pool(bytes);
}

bool BfcAllocator::reserve_arena(std::uint64_t bytes, Stream stream) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->reserve_arena(bytes, stream);
}

bool BfcAllocator::release_arena() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->arena.chunk() == kNoChunk || impl_->release_arena();
}

const void* BfcAllocator::arena_address() const {
  const std::lock_guard lock(impl_->mutex);
  return reinterpret_cast<const void*>(impl_->arena.address());
}

bool BfcAllocator::hold_arena(const void* address, std::uint64_t bytes, Stream stream) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->arena.hold(reinterpret_cast<std::uintptr_t>(address), bytes, stream);
}

void BfcAllocator::let_go_of_arena() {
  const std::lock_guard lock(impl_->mutex);
  impl_->arena.let_go();
}

bool BfcAllocator::begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->begin_placement(std::move(plan), stream);
}

void BfcAllocator::end_placement() {
  const std::lock_guard lock(impl_->mutex);
  impl_->arena.end();
}

bool BfcAllocator::placing() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->arena.following();
}

bool BfcAllocator::Impl::reserve_pool(std::uint64_t bytes) {
  return bytes <= counters.pool_bytes || supply->reserve(bytes - counters.pool_bytes);
}

bool BfcAllocator::Impl::reserve_arena(std::uint64_t bytes, Stream stream) {
  if (arena.chunk() != kNoChunk && arena.bytes() >= bytes && same_stream(arena.stream(), stream)) return true;
  if (bytes == 0 || (counters.limit_bytes != 0 && bytes > counters.limit_bytes)) return false;
  const std::size_t rounded = (static_cast<std::size_t>(bytes - 1) / kGranule + 1) * kGranule;
  if (rounded == 0) return false;  // it wrapped
  if (arena.chunk() != kNoChunk && !release_arena()) return false;
  structure.reserve();
  bool source_refused = false;
  const ChunkId id = find(rounded, frees.enter(stream), source_refused);
  if (id == kNoChunk) return false;
  structure.allocate(id, rounded, rounded, {Category::other, "arena"});
  arena.set(id, structure.chunk(id).address, rounded, stream);
  counters.arena_bytes = rounded;
  count_claimed();
  return true;
}

// Whether `bytes`, for which there is no other memory, may be had when the arena is given up: as the limit goes (what
// the source has, nobody knows).
bool BfcAllocator::Impl::arena_would_help(std::size_t bytes) const {
  const ChunkId chunk = idle_arena();
  return chunk != kNoChunk && (structure.free_around(chunk) >= bytes || supply->room_when_all_is_idle(bytes, chunk));
}

// False where there is none, or it is in use. A placement that has begun, but placed nothing yet, has departed.
bool BfcAllocator::Impl::release_arena() {
  if (arena.chunk() == kNoChunk || !arena.idle()) return false;
  const FreeState state = frees.enter(arena.stream());
  const std::uint64_t ticket = frees.ticket(state);  // may throw; nothing has changed yet
  if (arena.following()) depart();
  structure.release(arena.chunk(), state, ticket);
  arena.set(kNoChunk, 0, 0, {});
  counters.arena_bytes = 0;
  return true;
}

bool BfcAllocator::Impl::begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream) {
  if (arena.begin(std::move(plan), stream)) return true;
  ++counters.departures;
  return false;
}

void BfcAllocator::Impl::depart() {
  arena.end();
  ++counters.departures;
}

// The plan's next place for a request of its stream; null where it departs. The trace has room.
void* BfcAllocator::Impl::place(std::size_t rounded, std::size_t bytes, AllocationTag tag) {
  const std::optional<PlacementArena::Place> next = arena.next(rounded);
  if (!next) {
    depart();
    return nullptr;
  }
  const PlacementArena::Placed& placed = arena.take(*next, bytes, tag);
  counters.arena_in_use_bytes += placed.size;
  ++counters.planned_allocations;
  count_live(placed.size, bytes, tag.category);
  if (trace != nullptr) note_call(placed, arena.stream(), true);
  return reinterpret_cast<void*>(placed.address);
}

// What another stream used last may lie under the next planned allocation: the arena's stream waits for it.
void BfcAllocator::Impl::free_placed(void* address, Stream stream) {
  const PlacementArena::Placed& placed = live_place(address, "free");
  if (trace != nullptr) trace->reserve();
  frees.order(stream, arena.stream());  // may throw; nothing has changed yet
  counters.arena_in_use_bytes -= placed.size;
  count_free(placed.size, placed.requested, placed.tag.category);
  if (trace != nullptr) note_call(placed, stream, false);
  arena.release(*arena.find(address));
}

void BfcAllocator::Impl::count_claimed() {
  const std::uint64_t claimed = counters.in_use_bytes + counters.arena_idle_bytes();
  counters.peak_claimed_bytes = std::max(counters.peak_claimed_bytes, claimed);
}

const PlacementArena::Placed& BfcAllocator::Impl::live_place(const void* address, const char* call) const {
  if (const auto place = arena.find(address)) return arena.placed(*place);
  std::string why = "it lies in an idle part of the planned step's arena (freed already?)";
  if (const auto place = arena.containing(address)) {
    const std::uintptr_t begin = arena.placed(*place).address;
    why = fmt::format("it lies {} bytes inside the live allocation at {:#x}",
                      reinterpret_cast<std::uintptr_t>(address) - begin, begin);
  }
  throw Error(
      fmt::format("{} of {} on {}: not the address of a live allocation: {}", call, address, options.name, why));
}

}  // namespace bantam
