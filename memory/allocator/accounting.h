// Says what bytes are for: categories, tags on every allocation, and statistics that add up to the byte; and what an
// allocator did, call by call (AllocationTrace), read back as events, or as intervals with their tags.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

enum class Category : std::uint8_t { parameter, gradient, optimizer, activation, workspace, input, other };
inline constexpr std::size_t kCategories = 7;

/// "parameter", "gradient", …
std::string_view to_string(Category category);

/// Bytes a category, indexed by Category.
struct CategoryBytes {
  std::array<std::uint64_t, kCategories> bytes{};
  std::uint64_t& operator[](Category c) { return bytes[static_cast<std::size_t>(c)]; }
  std::uint64_t operator[](Category c) const { return bytes[static_cast<std::size_t>(c)]; }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t b : bytes) sum += b;
    return sum;
  }
};

/// Names an allocation's use. `owner` is a name that outlives the allocator's use of it: a layer path interned by the
/// Runtime, or a literal. No copy is made.
struct AllocationTag {
  Category category = Category::other;
  const char* owner = "";
};

/// A snapshot of one allocator. Sizes in bytes; in-use bytes are rounded sizes, so categories add up exactly.
struct MemoryStats {
  std::uint64_t in_use_bytes = 0;
  std::uint64_t requested_bytes = 0;  ///< what callers asked for, before rounding
  std::uint64_t peak_bytes = 0;       ///< most bytes in use since the last `reset_peak`
  std::uint64_t pool_bytes = 0;       ///< reserved from the memory source
  std::uint64_t peak_pool_bytes = 0;
  std::uint64_t limit_bytes = 0;  ///< 0: none
  std::uint64_t largest_free_bytes = 0;
  std::uint64_t free_chunks = 0;
  std::uint64_t live_allocations = 0;
  std::uint64_t allocations = 0;  ///< since the start
  std::uint64_t frees = 0;
  std::uint64_t regions = 0;
  std::uint64_t pool_changes = 0;  ///< since the start: calls of the source to reserve or release, failed ones too
  std::uint64_t arena_bytes = 0;   ///< reserved for the allocations of planned steps
  std::uint64_t arena_in_use_bytes = 0;  ///< the part of arena_bytes in use; in in_use_bytes too
  std::uint64_t peak_claimed_bytes = 0;  ///< most bytes in use or idle in the arena at one time: no pool can be smaller
  std::uint64_t planned_allocations = 0;  ///< since the start: served from the arena
  std::uint64_t departures = 0;           ///< since the start: placements that did not go as planned
  CategoryBytes by_category;              ///< sums to in_use_bytes
  CategoryBytes by_category_at_peak;      ///< sums to peak_bytes
  /// Reserved for planned allocations and not in use: neither in use nor free for others.
  std::uint64_t arena_idle_bytes() const { return arena_bytes - arena_in_use_bytes; }
  /// The part of the pool that any request may have: in use + free + the arena's idle bytes = the pool.
  std::uint64_t free_bytes() const { return pool_bytes - in_use_bytes - arena_idle_bytes(); }
  /// 1 - largest_free / free: 0 when all free memory is contiguous (or none is free).
  double fragmentation() const {
    const std::uint64_t all = free_bytes();
    return all == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free_bytes) / static_cast<double>(all);
  }
};

/// One holder of memory, for reports: all live allocations of one owner and category.
struct Holder {
  std::string owner;
  Category category = Category::other;
  std::uint64_t bytes = 0;
  std::uint64_t allocations = 0;
};

/// One call of an allocator, as it stood right after it.
struct TraceEvent {
  bool allocation = true;  ///< false: a free
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;       ///< rounded, as in MemoryStats
  std::uint64_t requested = 0;   ///< what the caller asked for
  std::uint64_t pool_bytes = 0;  ///< reserved from the memory source
  AllocationTag tag;             ///< a free has the tag of its allocation
  std::uint32_t stream = 0;      ///< Stream::id of the call
  /// Set by the trace itself: what the program was at (BfcAllocator::note_phase), and when, on the host's clock (a
  /// device may lag).
  const char* phase = "";
  std::int64_t nanoseconds = 0;  ///< since the trace was made
};

/// Where a phase begins; it ends where the next one does.
struct TracePhase {
  const char* name = "";
  std::int64_t tick = 0;  ///< calls before it
  std::int64_t nanoseconds = 0;
};

/// The life of one allocation. Times count calls: every allocation and every free of the allocator is one tick, so at
/// time t the bytes in use are those of the intervals with lower <= t < upper.
struct TraceInterval {
  static constexpr std::int64_t kStillLive = -1;  ///< as `upper`
  static constexpr std::int64_t kBefore = -1;     ///< as `lower`: live when the trace began

  std::int64_t lower = kBefore;
  std::int64_t upper = kStillLive;
  std::uint64_t bytes = 0;  ///< rounded, as in MemoryStats
  AllocationTag tag;
  const char* phase = "";  ///< what the program was at when it allocated: BfcAllocator::note_phase
  std::uintptr_t address = 0;
  std::uint64_t requested = 0;  ///< what the caller asked for
};

/// Records the calls of one allocator (BfcAllocator::set_trace). The allocator writes it under its lock; it is read
/// while nobody allocates. Owners and phases are kept as pointers, as tags are. A call costs a clock reading and 80
/// bytes of host memory.
class AllocationTrace {
 public:
  /// Ticks so far.
  std::int64_t now() const { return static_cast<std::int64_t>(events_.size()); }
  /// Time since the trace was made.
  std::int64_t nanoseconds() const { return (Clock::now() - start_) / std::chrono::nanoseconds(1); }

  /// Every call; the event at place t is tick t.
  std::span<const TraceEvent> events() const { return events_; }
  /// Every change of phase, in order.
  std::span<const TracePhase> phases() const { return phases_; }
  /// All allocations that were seen to begin or to end, in order of their beginning (those from before first, in order
  /// of their end). Memory that was live before and still is has made no call, and is not here.
  std::vector<TraceInterval> intervals() const;

  /// Internal: the allocator's side. `reserve` may throw std::bad_alloc; after it so many calls are noted without.
  void reserve(std::uint64_t calls = 1);
  void note(TraceEvent event) noexcept {
    event.phase = phase_;
    event.nanoseconds = nanoseconds();
    events_.push_back(event);
  }
  void note_phase(const char* phase) {
    phases_.push_back({phase, now(), nanoseconds()});
    phase_ = phase;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  std::vector<TraceEvent> events_;
  std::vector<TracePhase> phases_;
  const char* phase_ = "";
};

}  // namespace bantam
BANTAM_API_END
