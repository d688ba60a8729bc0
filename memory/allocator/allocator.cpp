// BfcAllocator's public functions: each locks the mutex and calls Impl.
#include "bantam/memory/allocator/allocator.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/accounting.h"
#include "bantam/memory/allocator/allocator_report.h"
#include "bantam/memory/allocator/bfc_structure.h"
#include "bantam/memory/allocator/placement_arena.h"
#include "bantam/memory/allocator/stream_frees.h"
#include "bantam/memory/allocator/supply.h"
#include "bantam/memory/device/spin_lock.h"

namespace bantam {

/// The state of a BfcAllocator: the structure, the streams' frees, the supply, the counters and the lock.
struct BfcAllocator::Impl {
  Impl(std::unique_ptr<MemorySource> source, Device the_device, AllocatorOptions the_options,
       std::unique_ptr<StreamOracle> oracle);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void* allocate(std::size_t bytes, const Stream& stream, AllocationTag tag);
  void free(void* address, const Stream& stream);
  std::uint64_t trim();
  void set_limit(std::uint64_t limit_bytes);
  /// The live chunk at `address`; throws Error in the name of `call`.
  ChunkId live_chunk(const void* address, const char* call) const;
  // These serve planned allocations; they are defined further down.
  bool reserve_pool(std::uint64_t bytes);
  bool reserve_arena(std::uint64_t bytes, Stream stream);
  bool release_arena();
  std::uint64_t begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream);
  /// The live planned allocation at `address`, which lies in the arena; throws as `live_chunk` does.
  const PlacementArena::Placed& live_place(const void* address, const char* call) const;
  MemoryStats stats() const;
  std::vector<Holder> holders() const;
  std::uint64_t trimmable_bytes() const;
  std::vector<MemoryRegion> reserved_regions() const;
  /// Records an allocation or free of `block` in the trace (there is one, with room), after it was counted.
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

  mutable SpinLock mutex;  ///< locked by the callers of all member functions
  const Device device;
  AllocatorOptions options;
  BfcStructure structure;
  StreamFrees frees;
  PlacementArena arena;
  MemoryStats counters;  ///< all but what `stats` asks of the structure
  std::unique_ptr<Supply> supply;
  AllocationTrace* trace = nullptr;  ///< null: nothing is noted

 private:
  ChunkId find(std::size_t bytes, FreeState own, bool& source_refused);
  ChunkId usable(std::size_t bytes, FreeState own);
  ChunkId find_by_waiting(std::size_t bytes, FreeState own, bool& source_refused);
  /// The arena's chunk where it is idle and not acquired, else kNoChunk.
  ChunkId idle_arena() const { return arena.idle() ? arena.chunk() : kNoChunk; }
  bool arena_would_help(std::size_t bytes) const;
  void* place(std::size_t rounded, std::size_t bytes, AllocationTag tag);
  void free_placed(void* address, Stream stream);
  void depart();
  BfcStructure::Totals totals() const;
  void count_claimed();
  void count_live(std::uint64_t size, std::uint64_t requested, Category category);
  void count_free(std::uint64_t size, std::uint64_t requested, Category category);
};

BfcAllocator::BfcAllocator(std::unique_ptr<MemorySource> source, Device device, AllocatorOptions options)
    : BfcAllocator(std::move(source), device, std::move(options), make_device_oracle()) {}

BfcAllocator::BfcAllocator(std::unique_ptr<MemorySource> source, Device device, AllocatorOptions options,
                           std::unique_ptr<StreamOracle> oracle)
    : impl_(std::make_unique<Impl>(std::move(source), device, std::move(options), std::move(oracle))) {}

BfcAllocator::~BfcAllocator() = default;

void* BfcAllocator::allocate(std::size_t bytes, Stream stream, AllocationTag tag) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(impl_->mutex);
  return impl_->allocate(bytes, stream, tag);
}

void BfcAllocator::free(void* address, Stream stream) {
  if (address == nullptr) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->free(address, stream);
}

std::uint64_t BfcAllocator::trim() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->trim();
}

MemoryStats BfcAllocator::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats();
}

void BfcAllocator::reset_peak() {
  const std::lock_guard lock(impl_->mutex);
  MemoryStats& counters = impl_->counters;
  counters.peak_bytes = counters.in_use_bytes;
  counters.by_category_at_peak = counters.by_category;
  counters.peak_pool_bytes = counters.pool_bytes;
  counters.peak_claimed_bytes = counters.in_use_bytes + counters.arena_idle_bytes();
}

std::vector<Holder> BfcAllocator::holders() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->holders();
}

std::uint64_t BfcAllocator::trimmable_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->trimmable_bytes();
}

AllocatorSnapshot BfcAllocator::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  return {impl_->stats(), impl_->holders(), impl_->reserved_regions(), impl_->trimmable_bytes()};
}

Device BfcAllocator::device() const { return impl_->device; }

const std::string& BfcAllocator::name() const { return impl_->options.name; }

void BfcAllocator::set_limit(std::uint64_t limit_bytes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->set_limit(limit_bytes);
}

void BfcAllocator::set_trace(AllocationTrace* trace) {
  const std::lock_guard lock(impl_->mutex);
  impl_->trace = trace;
}

AllocationTrace* BfcAllocator::trace() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->trace;
}

void BfcAllocator::note_phase(const char* phase) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->trace != nullptr) impl_->trace->note_phase(phase);
}

std::size_t BfcAllocator::allocated_bytes(const void* address) const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->arena.contains(address)) return impl_->live_place(address, "allocated_bytes").size;
  return impl_->structure.chunk(impl_->live_chunk(address, "allocated_bytes")).size;
}

std::string BfcAllocator::check_invariants() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->check();
}

// The allocator's policy: the order of attempts, what is counted.

namespace {

constexpr std::size_t kAllocationUnit = BfcAllocator::kAllocationUnit;
constexpr std::size_t kGreatestSize = std::numeric_limits<std::size_t>::max();

// Nothing where rounding up would wrap.
std::optional<std::size_t> round_up(std::size_t bytes) {
  if (bytes > kGreatestSize - (kAllocationUnit - 1)) return std::nullopt;
  return (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
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
  if (trace != nullptr)
    trace->reserve(counters.live_allocations + 2);  // also for the frees to come: they must not fail
  if (rounded && arena.follows(stream))
    if (void* placed = place(*rounded, bytes, tag); placed != nullptr) return placed;
  structure.reserve();
  const FreeState own = frees.enter(stream);
  ChunkId id = rounded ? find(*rounded, own, source_refused) : kNoChunk;
  if (id == kNoChunk && rounded && arena_would_help(*rounded) && release_arena())
    id = find(*rounded, frees.enter(stream), source_refused);  // its slot may be that of the arena's stream now
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
    const std::uint64_t reserved = supply->reserved_by_live_bytes(idle_arena());
    if (reserved > limit_bytes) throw limit_too_low(options.name, limit_bytes, reserved, stats());
    if (supply->reserved_by_live_bytes() > limit_bytes) (void)release_arena();
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

// The allocator's side of placement: the arena's memory, planned allocations and their frees.

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

std::uint64_t BfcAllocator::begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->begin_placement(std::move(plan), stream);
}

void BfcAllocator::end_placement(std::uint64_t placement) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->arena.following(placement)) impl_->arena.end();
}

bool BfcAllocator::placing(std::uint64_t placement) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->arena.following(placement);
}

bool BfcAllocator::Impl::reserve_pool(std::uint64_t bytes) {
  return bytes <= counters.pool_bytes || supply->reserve(bytes - counters.pool_bytes);
}

bool BfcAllocator::Impl::reserve_arena(std::uint64_t bytes, Stream stream) {
  if (arena.chunk() != kNoChunk && arena.bytes() >= bytes && same_stream(arena.stream(), stream)) return true;
  if (bytes == 0 || (counters.limit_bytes != 0 && bytes > counters.limit_bytes)) return false;
  const std::size_t rounded = (static_cast<std::size_t>(bytes - 1) / kAllocationUnit + 1) * kAllocationUnit;
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

// Whether releasing the arena would make room for `bytes` under the limit, where there is no other memory (nobody knows
// what the source has).
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

std::uint64_t BfcAllocator::Impl::begin_placement(std::shared_ptr<const PlacementPlan> plan, Stream stream) {
  const std::uint64_t placement = arena.begin(std::move(plan), stream);
  if (placement == 0) ++counters.departures;
  return placement;
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
  const PlacementArena::Placed& placed = arena.occupy(*next, bytes, tag);
  counters.arena_in_use_bytes += placed.size;
  ++counters.planned_allocations;
  count_live(placed.size, bytes, tag.category);
  if (trace != nullptr) note_call(placed, arena.stream(), true);
  return reinterpret_cast<void*>(placed.address);
}

// Another stream may have used the next planned allocation's place last: the arena's stream waits for it.
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

// The functions from here on report: statistics, holders, wrong addresses, and whether the books agree with the chunks.

ChunkId BfcAllocator::Impl::live_chunk(const void* address, const char* call) const {
  if (const ChunkId live = structure.find_live(address); live != kNoChunk) return live;
  std::string why = "it was not allocated here (or its region was released)";
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

// Sums up what the structure has live, with the planned allocations in place of the arena's chunk.
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

// As `trim` would: an idle arena is released and all frees are done, so that only live bytes keep memory reserved.
std::uint64_t BfcAllocator::Impl::trimmable_bytes() const {
  return counters.pool_bytes - supply->reserved_by_live_bytes(idle_arena());
}

std::vector<MemoryRegion> BfcAllocator::Impl::reserved_regions() const {
  std::vector<MemoryRegion> reserved;
  for (const auto& region : structure.regions()) reserved.push_back({region.address, region.size});
  std::ranges::sort(reserved, {}, &MemoryRegion::address);
  return reserved;
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
  if (now.in_use_bytes > now.peak_bytes || now.pool_bytes > now.peak_pool_bytes)
    return "more is reserved than at the peak";
  return "";
}

}  // namespace bantam
