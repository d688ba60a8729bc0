// Test support: a random program of allocations and frees, and its plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/allocator/placement.h"
#include "bantam/packing/planner.h"

namespace bantam::testing {

/// A drawn program: at each tick one allocation (its buffer's number) or one free.
struct Program {
  struct Call {
    std::size_t buffer = 0;
    bool frees = false;
  };
  std::vector<PlannerBuffer> buffers;
  std::vector<Call> calls;

  explicit Program(std::uint64_t seed, std::size_t count = 60) {
    PhiloxSequence random(philox_key(seed, RandomPurpose::test));
    std::vector<std::size_t> live;
    while (buffers.size() < count || !live.empty()) {
      const auto now = static_cast<std::int64_t>(calls.size());
      if (buffers.size() < count && (live.empty() || random.below(5) < 3)) {
        live.push_back(buffers.size());
        calls.push_back({buffers.size(), false});
        buffers.push_back({static_cast<std::int64_t>(buffers.size()), now, 0, 256 * (1 + random.below(64))});
      } else {
        const std::size_t at = random.below(live.size());
        buffers[live[at]].upper = now;
        calls.push_back({live[at], true});
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
  std::shared_ptr<const PlacementPlan> plan() const {
    return std::make_shared<const PlacementPlan>(buffers, solve_arena(buffers, {.alignment = 256, .iterations = 0}));
  }
};

}  // namespace bantam::testing
