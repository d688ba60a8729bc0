// Planned allocations among everything else: other streams, other threads, random calls of all kinds.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/allocator/placement.h"
#include "tests/memory/planned_program.h"
#include "tests/memory/simulated_streams.h"
#include "tests/memory/test_source.h"

namespace bantam::placement_fuzz_test {
namespace {

using testing::Program;
using testing::SimulatedOracle;
using testing::SimulatedStreams;
using testing::SourceLog;
using testing::TestSource;

constexpr AllocationTag kTag{Category::activation, "test"};
constexpr std::size_t kMiB = 1u << 20;

TEST(PlacementStreams, a_free_on_another_stream_makes_the_arenas_stream_wait) {
  auto streams = std::make_shared<SimulatedStreams>(3);
  BfcAllocator allocator(make_fake_source(), Device::cuda(0), {.name = "test"},
                         std::make_unique<SimulatedOracle>(streams));
  const Stream a = SimulatedStreams::stream(1), b = SimulatedStreams::stream(2);
  const std::vector<PlannerBuffer> buffers = {{0, 0, 1, 1024}, {1, 2, 3, 1024}};
  ASSERT_TRUE(allocator.reserve_arena(1024, a));
  {
    const PlacementScope scope(allocator, std::make_shared<const PlacementPlan>(buffers, solve_arena(buffers)), a);
    void* first = allocator.allocate(1024, a, kTag);
    const testing::Point used = streams->submit(b);
    allocator.free(first, b);
    EXPECT_EQ(streams->device_waits, 1u);
    EXPECT_EQ(streams->host_waits, 0u);
    void* second = allocator.allocate(1024, a, kTag);
    EXPECT_EQ(second, first);
    streams->submit(a, {used});  // fails where it could run before b is done
    streams->run_all();
    allocator.free(second, a);
    EXPECT_EQ(streams->device_waits, 1u) << "the arena's own stream needs no wait";
  }
  void* other = allocator.allocate(512, b, kTag);  // another stream's requests are nobody's plan
  allocator.free(other, b);
  EXPECT_TRUE(allocator.release_arena());
  EXPECT_EQ(allocator.check_invariants(), "");
  EXPECT_EQ(streams->checked, 1u);
  (void)allocator.trim();
  EXPECT_EQ(streams->open_marks, 0u);
}

/// Random calls of all kinds, with invariants after each.
TEST(PlacementFuzz, invariants_hold_whatever_is_called) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    PhiloxSequence random(philox_key(seed, RandomPurpose::test, 1));
    auto log = std::make_shared<SourceLog>();
    log->fails = [&random](std::uint64_t, std::size_t) { return random.below(8) == 0; };
    BfcAllocator allocator(std::make_unique<TestSource>(log, 0), Device::cpu(),
                           {.name = "test", .limit_bytes = 4 * kMiB, .first_region_bytes = 64 << 10});
    const Program program(seed, 40);
    const auto plan = program.plan();
    std::vector<void*> live;
    std::optional<PlacementScope> scope;
    std::size_t expected = 0;
    for (int step = 0; step < 600; ++step) {
      const std::uint64_t choice = random.below(20);
      try {
        if (choice < 9) {
          const bool planned = random.below(6) != 0;  // the plan's next size, most of the time
          const std::size_t bytes =
              planned ? program.buffers[expected++ % 40].size : 1 + random.below(random.below(9) == 0 ? 900'000 : 9000);
          live.push_back(allocator.allocate(bytes, {}, kTag));
        } else if (choice < 16 && !live.empty()) {
          const std::size_t at = random.below(live.size());
          allocator.free(live[at], {});
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (choice == 16) {
          scope.reset();
          (void)allocator.reserve_arena(plan->arena_bytes() / (1 + random.below(2)), {});
          scope.emplace(allocator, plan, Stream{});
          expected = 0;
        } else if (choice == 17) {
          (void)allocator.trim();
        } else if (choice == 18) {
          allocator.set_limit((1 + random.below(6)) * kMiB);
        } else if (choice == 19) {
          for (void* address : live) allocator.free(address, {});
          live.clear();
        }
      } catch (const OutOfMemory&) {
      }
      ASSERT_EQ(allocator.check_invariants(), "") << "seed " << seed << ", step " << step;
      ASSERT_EQ(allocator.stats().pool_bytes, log->reserved);
    }
    for (void* address : live) allocator.free(address, {});
    scope.reset();
    EXPECT_EQ(allocator.stats().arena_in_use_bytes, 0u);
    EXPECT_EQ(allocator.stats().in_use_bytes, 0u);
  }
}

TEST(PlacementThreads, others_may_allocate_while_a_plan_is_followed) {
  BfcAllocator allocator(make_fake_source(), Device::cpu(), {.name = "test"});
  const Program program(5, 200);
  const auto plan = program.plan();
  ASSERT_TRUE(allocator.reserve_arena(plan->arena_bytes(), {}));
  std::atomic<bool> stop{false};
  const auto disturb = [&](std::uint64_t seed) {
    PhiloxSequence random(philox_key(seed, RandomPurpose::test));
    while (!stop.load()) {
      void* mine = allocator.allocate(1 + random.below(20'000), {}, kTag);
      (void)allocator.stats();
      allocator.free(mine, {});
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> others;
  for (std::uint64_t seed = 0; seed < 3; ++seed) others.emplace_back(disturb, seed);
  std::vector<void*> addresses(program.buffers.size());
  for (int round = 0; round < 50; ++round) {
    const PlacementScope scope(allocator, plan, {});
    for (const Program::Call& call : program.calls) {
      if (call.frees)
        allocator.free(addresses[call.buffer], {});
      else
        addresses[call.buffer] = allocator.allocate(program.buffers[call.buffer].size, {}, kTag);
    }
  }
  stop = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(allocator.check_invariants(), "");
  EXPECT_EQ(allocator.stats().in_use_bytes, 0u);
  EXPECT_TRUE(allocator.release_arena());
}

}  // namespace
}  // namespace bantam::placement_fuzz_test
