// From solved offsets to a plan that an allocator follows: which earlier places must be free for each.
#include "bantam/memory/allocator/placement.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"

namespace bantam {
namespace {

bool share_bytes(const PlacementPlan::Entry& a, const PlacementPlan::Entry& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

void check_buffers(std::span<const PlannerBuffer> buffers, const ArenaPlan& arena) {
  constexpr std::uint64_t kAllocationUnit = BfcAllocator::kAllocationUnit;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (k > 0 && buffers[k].lower <= buffers[k - 1].lower)
      throw Error(fmt::format("placement: buffer {} does not begin after the one before", k));
    if (buffers[k].size == 0 || buffers[k].size % kAllocationUnit != 0)
      throw Error(
          fmt::format("placement: buffer {} has {} bytes, not granules of {}", k, buffers[k].size, kAllocationUnit));
  }
  if (const std::string broken = check_arena_plan(buffers, arena, kAllocationUnit); !broken.empty())
    throw Error("placement: " + broken);
}

}  // namespace

PlacementPlan::PlacementPlan(std::span<const PlannerBuffer> buffers, const ArenaPlan& arena)
    : arena_bytes_(arena.arena_bytes) {
  check_buffers(buffers, arena);
  for (std::size_t k = 0; k < buffers.size(); ++k) entries_.push_back({buffers[k].size, arena.offsets[k]});
  // Entry j blocks the first later entry that shares bytes with it. Those after that one need not ask again: they begin
  // only where all before them got their places, and what has ended stays ended.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> blocked;  // (who waits, for whom)
  for (std::uint32_t j = 0; j < entries_.size(); ++j) {
    std::uint32_t k = j + 1;
    while (k < entries_.size() && !share_bytes(entries_[j], entries_[k])) ++k;
    if (k < entries_.size()) blocked.emplace_back(k, j);
  }
  std::ranges::sort(blocked);
  std::size_t next = 0;
  for (std::uint32_t k = 0; k < entries_.size(); ++k) {
    entries_[k].first_blocker = static_cast<std::uint32_t>(next);
    for (; next < blocked.size() && blocked[next].first == k; ++next) blockers_.push_back(blocked[next].second);
  }
}

PlacementScope::PlacementScope(BfcAllocator& allocator, std::shared_ptr<const PlacementPlan> plan, Stream stream)
    : allocator_(allocator),
      wanted_(plan != nullptr),
      placement_(wanted_ ? allocator.begin_placement(std::move(plan), stream) : 0) {}

PlacementScope::~PlacementScope() {
  if (placement_ != 0) allocator_.end_placement(placement_);
}

ArenaHold::ArenaHold(BfcAllocator& allocator, const void* address, std::uint64_t bytes, Stream stream)
    : allocator_(allocator), acquired_(allocator.hold_arena(address, bytes, stream)) {}

ArenaHold::~ArenaHold() {
  if (acquired_) allocator_.let_go_of_arena();
}

bool PlacementScope::departed() const { return wanted_ && !(placement_ != 0 && allocator_.placing(placement_)); }

}  // namespace bantam
