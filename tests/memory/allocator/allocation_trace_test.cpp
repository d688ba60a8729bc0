// The trace of an allocator: its intervals tell what was in use at every moment.
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/philox.h"
#include "bantam/memory/allocator/accounting.h"
#include "bantam/memory/allocator/allocator.h"

namespace bantam::testing::allocation_trace_test {
namespace {

std::unique_ptr<BfcAllocator> fake_allocator() {
  return std::make_unique<BfcAllocator>(make_fake_source(), Device::meta_of(Device::cpu()), AllocatorOptions{});
}
Stream stream() { return {.device = Device::meta_of(Device::cpu())}; }

std::uint64_t in_use_at(const std::vector<TraceInterval>& intervals, std::int64_t time) {
  std::uint64_t bytes = 0;
  for (const TraceInterval& i : intervals)
    if (i.lower <= time && (i.upper == TraceInterval::kStillLive || time < i.upper)) bytes += i.bytes;
  return bytes;
}

TEST(AllocationTrace, IntervalsTellWhatWasInUse) {
  const auto allocator = fake_allocator();
  AllocationTrace trace;
  allocator->set_trace(&trace);
  PhiloxSequence random(philox_key(11, RandomPurpose::test));
  std::vector<void*> live;
  std::vector<std::uint64_t> in_use;
  for (int call = 0; call < 2000; ++call) {
    if (live.empty() || random.below(2) == 0) {
      live.push_back(allocator->allocate(1 + random.below(5000), stream(), {Category::activation, "layer"}));
    } else {
      std::swap(live[random.below(live.size())], live.back());
      allocator->free(live.back(), stream());
      live.pop_back();
    }
    in_use.push_back(allocator->stats().in_use_bytes);
  }
  ASSERT_EQ(trace.now(), 2000);
  const auto intervals = trace.intervals();
  for (std::size_t t = 0; t < in_use.size(); ++t)
    ASSERT_EQ(in_use_at(intervals, static_cast<std::int64_t>(t)), in_use[t]) << "after call " << t;
}

TEST(AllocationTrace, KeepsTagsAndPhasesAndSeesFreesOfWhatWasThere) {
  const auto allocator = fake_allocator();
  void* before = allocator->allocate(300, stream(), {Category::parameter, "weights"});
  AllocationTrace trace;
  allocator->note_phase("unheard");
  allocator->set_trace(&trace);
  allocator->note_phase("forward");
  void* a = allocator->allocate(100, stream(), {Category::activation, "conv"});
  allocator->note_phase("backward");
  allocator->free(before, stream());
  void* b = allocator->allocate(1000, stream(), {Category::workspace, "dense"});
  allocator->free(a, stream());
  allocator->set_trace(nullptr);
  allocator->free(b, stream());
  const auto intervals = trace.intervals();
  ASSERT_EQ(intervals.size(), 3u);
  EXPECT_EQ(intervals[0].lower, TraceInterval::kBefore);
  EXPECT_EQ(intervals[0].upper, 1);
  EXPECT_EQ(intervals[0].bytes, 512u);
  EXPECT_STREQ(intervals[0].tag.owner, "weights");
  EXPECT_EQ(intervals[1].lower, 0);
  EXPECT_EQ(intervals[1].upper, 3);
  EXPECT_STREQ(intervals[1].phase, "forward");
  EXPECT_EQ(intervals[1].tag.category, Category::activation);
  EXPECT_EQ(intervals[2].upper, TraceInterval::kStillLive) << "its free came after the trace";
  EXPECT_STREQ(intervals[2].phase, "backward");
  EXPECT_EQ(intervals[2].bytes, 1024u);
}

TEST(AllocationTrace, EventsTellAddressesSizesPoolAndTime) {
  const auto allocator = fake_allocator();
  AllocationTrace trace;
  allocator->set_trace(&trace);
  allocator->note_phase("forward");
  void* a = allocator->allocate(300, stream(), {Category::activation, "conv"});
  allocator->note_phase("backward");
  Stream other = stream();
  other.id = 3;
  allocator->free(a, other);
  const auto events = trace.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].allocation);
  EXPECT_FALSE(events[1].allocation);
  for (const TraceEvent& event : events) {
    EXPECT_EQ(event.address, reinterpret_cast<std::uintptr_t>(a));
    EXPECT_EQ(event.bytes, 512u);
    EXPECT_EQ(event.requested, 300u);
    EXPECT_EQ(event.pool_bytes, allocator->stats().pool_bytes);
    EXPECT_STREQ(event.tag.owner, "conv");
  }
  EXPECT_EQ(events[1].stream, 3u);
  EXPECT_STREQ(events[1].phase, "backward");
  const auto phases = trace.phases();
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_STREQ(phases[1].name, "backward");
  EXPECT_EQ(phases[1].tick, 1);
  EXPECT_LE(phases[0].nanoseconds, events[0].nanoseconds);
  EXPECT_LE(events[0].nanoseconds, phases[1].nanoseconds);
  EXPECT_LE(phases[1].nanoseconds, events[1].nanoseconds);
  const auto intervals = trace.intervals();
  ASSERT_EQ(intervals.size(), 1u);
  EXPECT_EQ(intervals[0].requested, 300u);
  EXPECT_EQ(intervals[0].address, reinterpret_cast<std::uintptr_t>(a));
}

TEST(AllocationTrace, ARefusedAllocationLeavesNoTrace) {
  BfcAllocator allocator(make_fake_source(1 << 20), Device::meta_of(Device::cpu()), {.limit_bytes = 1 << 20});
  AllocationTrace trace;
  allocator.set_trace(&trace);
  EXPECT_ANY_THROW((void)allocator.allocate(2 << 20, stream(), {}));
  EXPECT_EQ(trace.now(), 0);
  EXPECT_EQ(allocator.allocate(0, stream(), {}), nullptr);
  EXPECT_EQ(trace.now(), 0);
}

}  // namespace
}  // namespace bantam::testing::allocation_trace_test
