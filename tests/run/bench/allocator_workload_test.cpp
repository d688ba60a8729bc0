// The requests that allocators are measured on: in the right order, nothing live at the end, sums right.
#include "bantam/run/bench/allocator_workload.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace bantam::run::allocator_workload_test {
namespace {

/// Replays the calls; fails where one frees an empty slot, fills a full one, or ends with a full one.
std::uint64_t replay(const AllocatorWorkload& workload) {
  std::vector<std::uint64_t> slots(workload.slots);
  std::uint64_t live = 0, peak = 0, allocations = 0;
  for (const AllocatorCall& call : workload.calls) {
    EXPECT_NE(slots.at(call.slot) == 0, call.bytes == 0);
    live += call.bytes - slots[call.slot];
    slots[call.slot] = call.bytes;
    peak = std::max(peak, live);
    allocations += call.bytes != 0 ? 1 : 0;
  }
  EXPECT_EQ(live, 0u);
  EXPECT_EQ(allocations, workload.allocations);
  EXPECT_EQ(peak, workload.peak_live_bytes);
  return peak;
}

TEST(AllocatorWorkload, LifetimesAreHalfOpen) {
  const std::vector<PlannerBuffer> buffers = {{0, 0, 5, 100}, {1, 5, 9, 300}, {2, 4, 6, 50}, {3, 1, 2, 0}};
  const AllocatorWorkload workload = trace_workload("t", buffers);
  EXPECT_EQ(replay(workload), 350u) << "what ends at 5 is gone before what begins at 5";
  EXPECT_EQ(replay(workload), max_live_bytes(buffers));
  EXPECT_EQ(workload.allocations, 3u) << "a buffer of no size is no request";
}

TEST(AllocatorWorkload, MadeUpOnes) {
  EXPECT_EQ(replay(pair_workload()), 1u << 20);
  const AllocatorWorkload mixed = mixed_workload();
  replay(mixed);
  for (const AllocatorCall& call : mixed.calls)
    if (call.bytes != 0) {
      EXPECT_GE(call.bytes, 256u);
      EXPECT_LE(call.bytes, 4u << 20);
    }
}

TEST(AllocatorWorkload, AStepOfResNet50) {
  const AllocatorWorkload step = step_workload();
  EXPECT_GT(step.allocations, 500u);
  EXPECT_GT(replay(step), std::uint64_t{1} << 30);
}

}  // namespace
}  // namespace bantam::run::allocator_workload_test
