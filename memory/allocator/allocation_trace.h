// AllocationTrace: what an allocator did, call by call, read back as events, or as intervals with their tags.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "bantam/memory/allocator/accounting.h"

namespace bantam {

/// One call of an allocator, as it stood right after it.
struct TraceEvent {
  bool allocation = true;  ///< false: a free
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;       ///< rounded, as in MemoryStats
  std::uint64_t requested = 0;   ///< what the caller asked for
  std::uint64_t pool_bytes = 0;  ///< held from the region source
  AllocationTag tag;             ///< of a free: the allocation's
  std::uint32_t stream = 0;      ///< Stream::id of the call
  /// Set by the trace itself: what the program was at (BfcAllocator::note_phase), and when, on the host's clock (a
  /// device may be behind).
  const char* phase = "";
  std::int64_t nanoseconds = 0;  ///< since the trace was made
};

/// Where a phase begins; it ends where the next one does.
struct TracePhase {
  const char* name = "";
  std::int64_t tick = 0;  ///< calls before it
  std::int64_t nanoseconds = 0;
};

/// The life of one allocation. Times count calls: every allocation and every free of the allocator takes one tick, so
/// at time t the bytes in use are those of the intervals with lower <= t < upper.
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

  /// Internal: the allocator's side. `reserve` may throw std::bad_alloc; after it one call is noted without.
  void reserve();
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
