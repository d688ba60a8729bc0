// Placement: the k-th allocation of a planned step is served at place k of one arena.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bantam/memory/device/device.h"
#include "bantam/packing/planner.h"

namespace bantam {

class BfcAllocator;

/// The arena offsets of a step's allocations, in their order. Immutable, so that threads may share it.
class PlacementPlan {
 public:
  struct Entry {
    std::uint64_t bytes = 0;   ///< rounded, as the allocator counts
    std::uint64_t offset = 0;  ///< in the arena
    std::uint32_t first_blocker = 0;
  };

  /// `buffers` in the order of their allocation, with sizes in allocation units of the allocator; `arena` is
  /// solve_arena's answer to them, aligned to the allocation unit. Throws Error for another order, other sizes, or an
  /// arena that check_arena_plan refuses.
  PlacementPlan(std::span<const PlannerBuffer> buffers, const ArenaPlan& arena);

  std::size_t size() const { return entries_.size(); }
  const Entry& entry(std::size_t k) const { return entries_[k]; }
  std::uint64_t arena_bytes() const { return arena_bytes_; }
  /// Entries that must have ended before entry k may begin, beside those that an earlier entry has waited for: of all
  /// that share bytes with k, those that share none with the entries between. An entry is listed once at most.
  std::span<const std::uint32_t> blockers(std::size_t k) const {
    const std::size_t end = k + 1 < entries_.size() ? entries_[k + 1].first_blocker : blockers_.size();
    return std::span(blockers_).subspan(entries_[k].first_blocker, end - entries_[k].first_blocker);
  }

 private:
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> blockers_;
  std::uint64_t arena_bytes_ = 0;
};

/// While it lives, `allocator` serves the allocations on `stream` from its arena (BfcAllocator::reserve_arena), the
/// k-th at the plan's place k. At the first that is not the plan's (another size, more of them, a place still in use)
/// the scope has *departed*: this and all later ones are served without the plan. It has departed from the start where
/// the plan is null, the arena is too small, still in use or of another stream, or another scope is active. Requests on
/// other streams are served without the plan and change nothing. Placed allocations may outlive the scope.
class PlacementScope {
 public:
  PlacementScope(BfcAllocator& allocator, std::shared_ptr<const PlacementPlan> plan, Stream stream);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;
  PlacementScope& operator=(const PlacementScope&) = delete;

  /// Whether a plan was given and something was not served by it.
  bool departed() const;

 private:
  BfcAllocator& allocator_;
  bool wanted_;
  std::uint64_t placement_;  // 0: none of ours
};

/// While it lives, an allocator's idle arena is not released: for launching work that was recorded in it
/// (captured_work.h). No plan is followed in it meanwhile.
class ArenaHold {
 public:
  /// Acquires the arena that begins at `address` with `bytes` or more, for work on `stream`; `acquired` is false where
  /// there is none or it is in use.
  ArenaHold(BfcAllocator& allocator, const void* address, std::uint64_t bytes, Stream stream);
  ~ArenaHold();
  ArenaHold(const ArenaHold&) = delete;
  ArenaHold& operator=(const ArenaHold&) = delete;
  bool acquired() const { return acquired_; }

 private:
  BfcAllocator& allocator_;
  bool acquired_;
};

}  // namespace bantam
