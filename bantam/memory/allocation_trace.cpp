// From calls to intervals: each free ends the allocation that had its address last.
#include "bantam/memory/allocation_trace.h"

#include <algorithm>
#include <unordered_map>

namespace bantam {

void AllocationTrace::reserve() {
  if (calls_.size() == calls_.capacity()) calls_.reserve(std::max<std::size_t>(256, calls_.size() * 2));
}

std::vector<TraceInterval> AllocationTrace::intervals() const {
  std::vector<TraceInterval> before, seen;
  std::unordered_map<std::uintptr_t, std::size_t> live;  // by address, places in `seen`
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    const auto time = static_cast<std::int64_t>(i);
    if (call.phase != nullptr) {
      live.insert_or_assign(call.address, seen.size());
      seen.push_back({time, TraceInterval::kStillLive, call.bytes, call.tag, call.phase});
      continue;
    }
    const auto found = live.find(call.address);
    if (found == live.end()) {
      before.push_back({TraceInterval::kBefore, time, call.bytes, call.tag, ""});
    } else {
      seen[found->second].upper = time;
      live.erase(found);
    }
  }
  before.insert(before.end(), seen.begin(), seen.end());
  return before;
}

}  // namespace bantam
