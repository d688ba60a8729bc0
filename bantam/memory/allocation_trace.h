// AllocationTrace: what an allocator did, call by call, read back as intervals with their tags.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/memory/accounting.h"

namespace bantam {

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
};

/// Records the calls of one allocator (BfcAllocator::set_trace). The allocator writes it under its lock; it is read
/// while nobody allocates. Owners and phases are kept as pointers, as tags are.
class AllocationTrace {
 public:
  /// Ticks so far.
  std::int64_t now() const { return static_cast<std::int64_t>(calls_.size()); }

  /// All allocations that were seen to begin or to end, in order of their beginning (those from before first, in order
  /// of their end). Memory that was live before and still is has made no call, and is not here.
  std::vector<TraceInterval> intervals() const;

  /// Internal: the allocator's side. `reserve` may throw std::bad_alloc; after it one call is noted without.
  void reserve();
  void note_allocation(std::uintptr_t address, std::uint64_t bytes, AllocationTag tag) noexcept {
    calls_.push_back({address, bytes, tag, phase_});
  }
  void note_free(std::uintptr_t address, std::uint64_t bytes, AllocationTag tag) noexcept {
    calls_.push_back({address, bytes, tag, nullptr});
  }
  void note_phase(const char* phase) noexcept { phase_ = phase; }

 private:
  struct Call {
    std::uintptr_t address;
    std::uint64_t bytes;
    AllocationTag tag;
    const char* phase;  // null: a free
  };
  std::vector<Call> calls_;
  const char* phase_ = "";
};

}  // namespace bantam
