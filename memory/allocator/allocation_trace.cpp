// From calls to intervals: each free ends the allocation that had its address last.
#include <algorithm>
#include <unordered_map>

#include "bantam/memory/allocator/accounting.h"

namespace bantam {

void AllocationTrace::reserve(std::uint64_t calls) {
  const std::size_t need = events_.size() + static_cast<std::size_t>(calls);
  if (need > events_.capacity()) events_.reserve(std::max({std::size_t{256}, need, events_.size() * 2}));
}

std::vector<TraceInterval> AllocationTrace::intervals() const {
  std::vector<TraceInterval> before, seen;
  std::unordered_map<std::uintptr_t, std::size_t> live;  // by address, places in `seen`
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const TraceEvent& event = events_[i];
    const auto time = static_cast<std::int64_t>(i);
    TraceInterval interval{.bytes = event.bytes,
                           .tag = event.tag,
                           .phase = event.phase,
                           .address = event.address,
                           .requested = event.requested};
    if (event.allocation) {
      interval.lower = time;
      live.insert_or_assign(event.address, seen.size());
      seen.push_back(interval);
      continue;
    }
    const auto found = live.find(event.address);
    if (found == live.end()) {
      interval.upper = time;
      interval.phase = "";  // unknown: that of its free says nothing of its allocation
      before.push_back(interval);
    } else {
      seen[found->second].upper = time;
      live.erase(found);
    }
  }
  before.insert(before.end(), seen.begin(), seen.end());
  return before;
}

}  // namespace bantam
