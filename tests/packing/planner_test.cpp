// The planner: plans are valid, as small as they can be where that is known, and the same each time.
#include "bantam/packing/planner.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/cpu_seconds.h"
#include "tests/packing/planner_instances.h"

namespace bantam::testing::planner_test {
namespace {

/// Every pair, byte by byte: slow and plain.
bool overlap_anywhere(const std::vector<PlannerBuffer>& buffers, const ArenaPlan& plan) {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const bool in_time = buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper;
      const bool in_space =
          plan.offsets[i] < plan.offsets[j] + buffers[j].size && plan.offsets[j] < plan.offsets[i] + buffers[i].size;
      if (in_time && in_space) return true;
    }
  return false;
}

TEST(Planner, NothingNeedsNothing) {
  const ArenaPlan plan = solve_arena({});
  EXPECT_EQ(plan.arena_bytes, 0u);
  EXPECT_EQ(plan.max_live_bytes, 0u);
  EXPECT_EQ(plan.ratio(), 1.0);
  EXPECT_EQ(plan.stop, PlannerStop::optimal);
}

TEST(Planner, LifetimesAreHalfOpen) {
  const std::vector<PlannerBuffer> buffers{{0, 0, 5, 100}, {1, 5, 9, 100}, {2, 4, 6, 50}};
  const ArenaPlan plan = solve_arena(buffers);
  EXPECT_EQ(plan.max_live_bytes, 150u);
  EXPECT_EQ(plan.arena_bytes, 150u);
  EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
  EXPECT_FALSE(overlap_anywhere(buffers, plan));
}

TEST(Planner, FindsTheFullPlanOfASmallPuzzle) {
  // A pinwheel: no cut goes through, and it fills 3 x 3 exactly.
  const std::vector<PlannerBuffer> buffers{{0, 0, 2, 1}, {1, 2, 3, 2}, {2, 1, 3, 1}, {3, 0, 1, 2}, {4, 1, 2, 1}};
  const ArenaPlan plan = solve_arena(buffers, {.seconds = 0, .iterations = 2000});
  EXPECT_EQ(plan.max_live_bytes, 3u);
  EXPECT_EQ(plan.arena_bytes, 3u);
  EXPECT_EQ(check_arena_plan(buffers, plan, 1), "");
}

TEST(Planner, AlignmentIsKeptAndCostsOnlyRounding) {
  const std::vector<PlannerBuffer> buffers{{0, 0, 9, 1}, {1, 0, 9, 257}, {2, 1, 3, 256}, {3, 3, 9, 100}, {4, 2, 5, 0}};
  const ArenaPlan plan = solve_arena(buffers, {.alignment = 256});
  for (const std::uint64_t offset : plan.offsets) EXPECT_EQ(offset % 256, 0u);
  EXPECT_EQ(plan.max_live_bytes, 1u + 257u + 256u);
  EXPECT_LE(plan.arena_bytes, 1024u);
  EXPECT_EQ(plan.stop, PlannerStop::optimal) << "the rounded sizes are the bound";
  EXPECT_EQ(check_arena_plan(buffers, plan, 256), "");
}

TEST(Planner, PlansOfRandomBuffersAreValid) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    PhiloxSequence random(philox_key(seed, RandomPurpose::test));
    std::vector<PlannerBuffer> buffers;
    const auto count = static_cast<std::int64_t>(1 + random.below(80));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto lower = static_cast<std::int64_t>(random.below(100)) - 50;
      buffers.push_back({i, lower, lower + 1 + static_cast<std::int64_t>(random.below(40)), random.below(1000)});
    }
    const std::uint64_t alignment = seed % 2 == 0 ? 1 : 64;
    const ArenaPlan plan = solve_arena(buffers, {.alignment = alignment, .seconds = 0, .iterations = 50, .seed = seed});
    EXPECT_FALSE(overlap_anywhere(buffers, plan)) << "seed " << seed;
    EXPECT_EQ(check_arena_plan(buffers, plan, alignment), "") << "seed " << seed;
    EXPECT_GE(plan.arena_bytes, plan.max_live_bytes);
    EXPECT_EQ(plan.max_live_bytes, max_live_bytes(buffers));
  }
}

/// Of one instance chance may have it otherwise.
TEST(Planner, MoreWorkersFindLowerArenas) {
  const auto sum = [](int workers) {
    std::uint64_t bytes = 0;
    for (std::uint64_t seed = 300; seed < 306; ++seed) {
      const HardInstance instance = cut_rectangle(seed, 300, 1 << 20, {.times = 100});
      bytes += solve_arena(instance.buffers, {.seconds = 0, .iterations = 300, .workers = workers}).arena_bytes;
    }
    return bytes;
  };
  EXPECT_LT(sum(4), sum(1));
}

TEST(Planner, TheSearchKeepsTheAlignment) {
  HardInstance instance = cut_rectangle(200, 200, 1 << 20);
  for (PlannerBuffer& b : instance.buffers) b.size = (b.size + 255) / 256 * 256;  // so that rounding costs nothing
  const ArenaPlan constructed = solve_arena(instance.buffers, {.alignment = 256, .seconds = 0, .iterations = 0});
  const ArenaPlan plan = solve_arena(instance.buffers, {.alignment = 256, .seconds = 0, .iterations = 2000});
  EXPECT_LT(plan.arena_bytes, constructed.arena_bytes) << "the search found nothing, so this test shows nothing";
  EXPECT_EQ(check_arena_plan(instance.buffers, plan, 256), "");
  EXPECT_FALSE(overlap_anywhere(instance.buffers, plan));
}

TEST(Planner, EqualInputsHaveEqualPlansUnlessTimeEndsThem) {
  const HardInstance instance = fill_holes(3, 1 << 20);
  const PlannerOptions options{.seconds = 0, .iterations = 600, .seed = 3};
  const ArenaPlan first = solve_arena(instance.buffers, options), again = solve_arena(instance.buffers, options);
  EXPECT_EQ(first.offsets, again.offsets);
  EXPECT_EQ(first.stop, PlannerStop::iterations);
  EXPECT_EQ(first.iterations, 600);
  const ArenaPlan other = solve_arena(instance.buffers, {.seconds = 0, .iterations = 600, .seed = 4});
  EXPECT_NE(first.offsets, other.offsets) << "the seed matters, else this test shows nothing";
}

TEST(Planner, MoreSearchIsNeverWorse) {
  const HardInstance instance = cut_rectangle(220, 220, 1 << 20);
  const auto arena = [&](std::int64_t iterations) {
    return solve_arena(instance.buffers, {.seconds = 0, .iterations = iterations}).arena_bytes;
  };
  const std::uint64_t constructed = arena(0);
  EXPECT_LT(arena(2000), constructed);
}

TEST(Planner, StopsAtTheCapacity) {
  const HardInstance instance = cut_rectangle(150, 150, 1 << 20);
  const std::uint64_t capacity = instance.capacity + instance.capacity / 4;
  const ArenaPlan plan = solve_arena(instance.buffers, {.capacity = capacity, .seconds = 0});
  EXPECT_LE(plan.arena_bytes, capacity);
  EXPECT_EQ(plan.stop, PlannerStop::capacity);
  EXPECT_LT(plan.iterations, 10'000);
}

/// Plans within a thousandth of the lower bound are good enough, but not where they miss a capacity that was given.
TEST(Planner, TracesWithSectionsReachTheirCapacity) {
  struct Trace {
    std::uint64_t seed;
    std::size_t sections, buffers_each;
  };
  for (const auto& [seed, sections, each] : {Trace{1, 1, 150}, {3, 8, 30}, {4, 8, 30}, {2, 2, 60}, {6, 2, 60}}) {
    const HardInstance trace = sectioned_trace(seed, sections, each, 1 << 20, 1024);
    ASSERT_EQ(max_live_bytes(trace.buffers), trace.capacity);
    const ArenaPlan plan = solve_arena(trace.buffers, {.capacity = trace.capacity, .seconds = 0});
    EXPECT_EQ(check_arena_plan(trace.buffers, plan, 1), "") << "seed " << seed;
    EXPECT_EQ(plan.arena_bytes, trace.capacity) << "seed " << seed << ", stopped: " << to_string(plan.stop);
  }
}

TEST(Planner, ACapacityBelowTheBoundIsNoReasonToSearchOn) {
  const HardInstance trace = sectioned_trace(1, 1, 150, 1 << 20, 1024);
  const PlannerOptions none{.seconds = 0}, too_small{.capacity = trace.capacity - 1, .seconds = 0};
  EXPECT_EQ(solve_arena(trace.buffers, too_small).offsets, solve_arena(trace.buffers, none).offsets);
}

/// The arena is as high as the highest section needs, whatever the others are.
TEST(Planner, SectionsAreSolvedByThemselves) {
  const HardInstance trace = sectioned_trace(2, 4, 80, 1 << 20, 1024);
  const ArenaPlan plan = solve_arena(trace.buffers, {.capacity = trace.capacity, .seconds = 0});
  EXPECT_EQ(plan.arena_bytes, trace.capacity) << "stopped: " << to_string(plan.stop);
  EXPECT_EQ(check_arena_plan(trace.buffers, plan, 1), "");
  const ArenaPlan none = solve_arena(trace.buffers, {.seconds = 0, .iterations = 0});
  EXPECT_EQ(none.stop, PlannerStop::iterations);
  EXPECT_EQ(none.iterations, 0);
  EXPECT_EQ(check_arena_plan(trace.buffers, none, 1), "");
}

/// More pairs of neighbours than the ejection search lists: then all of the budget is the skyline's.
TEST(Planner, SpendsItsBudgetOnManyNeighboursToo) {
  PhiloxSequence random(philox_key(1, RandomPurpose::test));
  std::vector<PlannerBuffer> buffers;
  for (std::int64_t i = 0; i < 9'000; ++i) {
    const auto lower = static_cast<std::int64_t>(random.below(1'000));
    buffers.push_back({i, lower, lower + 1 + static_cast<std::int64_t>(random.below(80)), 1 + random.below(1000)});
  }
  const ArenaPlan plan = solve_arena(buffers, {.seconds = 0, .iterations = 8});
  EXPECT_EQ(check_arena_plan(buffers, plan, 1), "");
  EXPECT_EQ(plan.stop, PlannerStop::iterations) << "else this test shows nothing: it was easy";
  EXPECT_GE(plan.iterations, 8);
}

TEST(Planner, StopsInTime) {
  const HardInstance instance = cut_rectangle(450, 450, 1 << 20, {.times = 100});
  const ArenaPlan plan = solve_arena(instance.buffers, {.seconds = 0.05, .iterations = 1'000'000'000, .workers = 1});
  EXPECT_EQ(plan.stop, PlannerStop::time);
  EXPECT_GE(plan.seconds, 0.05);
  EXPECT_LT(plan.seconds, 5.0);  // generous: the machine may be busy
}

std::vector<PlannerBuffer> random_buffers(std::int64_t count, std::int64_t times, std::int64_t longest) {
  PhiloxSequence random(philox_key(1, RandomPurpose::test));
  std::vector<PlannerBuffer> buffers;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto lower = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(times)));
    const auto life = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest)));
    buffers.push_back({i, lower, lower + life, 1 + random.below(1 << 20)});
  }
  return buffers;
}

/// Processor time, of all threads, so that a busy machine changes little: each worker has a second, the time before
/// they begin counted. Construction knew no limit, and needed 32 s and more; boxes of the 2,000 needed 10 s.
TEST(Planner, ConstructionEndsInTime) {
  struct Case {
    std::int64_t count, times, longest;
    double most_ratio;
  };
  for (const auto& [count, times, longest, most_ratio] : {Case{60'000, 1'000'000, 1'000, 1.07},
                                                          {60'000, 1'000'000, 1'000'000, 1.03},
                                                          {2'000, 1'000'000, 1'000'000, 1.02}}) {
    const std::vector<PlannerBuffer> buffers = random_buffers(count, times, longest);
    ArenaPlan plan;
    EXPECT_LE(testing::cpu_seconds([&] { plan = solve_arena(buffers); }), 6.0) << count << " buffers";
    EXPECT_LE(plan.ratio(), most_ratio) << count << " buffers";
    EXPECT_EQ(check_arena_plan(buffers, plan, 1), "") << count << " buffers";
  }
}

/// A second's search, or the time for as much of it where a sanitizer or the machine is slow.
TEST(Planner, SearchesManyBuffersToo) {
  const std::vector<PlannerBuffer> buffers = random_buffers(12'000, 200'000, 1'000);
  const ArenaPlan plan = solve_arena(buffers, {.seconds = testing::kSlowdown * testing::slowness()});
  EXPECT_GT(plan.iterations, 0) << "construction left no time";
  EXPECT_LT(plan.ratio(), 1.02);
  EXPECT_EQ(check_arena_plan(buffers, plan, 1), "");
}

/// One order over time is made without a look at the clock.
TEST(Planner, TheFirstPlanNeedsNoTime) {
  const std::vector<PlannerBuffer> buffers = random_buffers(5'000, 10'000, 100);
  const ArenaPlan plan = solve_arena(buffers, {.seconds = 1e-9});
  EXPECT_EQ(check_arena_plan(buffers, plan, 1), "");
  EXPECT_EQ(plan.stop, PlannerStop::time);
}

TEST(Planner, RefusesWhatMakesNoSense) {
  EXPECT_THROW(solve_arena(std::vector<PlannerBuffer>{{0, 3, 3, 1}}), Error);
  EXPECT_THROW(solve_arena(std::vector<PlannerBuffer>{{0, 4, 3, 1}}), Error);
  EXPECT_THROW(solve_arena({}, {.alignment = 0}), Error);
  EXPECT_THROW(solve_arena({}, {.workers = 0}), Error);
  const std::uint64_t half = std::uint64_t{1} << 61;
  EXPECT_THROW(solve_arena(std::vector<PlannerBuffer>{{0, 0, 1, half}, {1, 0, 1, half}, {2, 0, 1, 1}}), Error);
  EXPECT_THROW(solve_arena(std::vector<PlannerBuffer>{{0, 0, 1, ~std::uint64_t{0}}}), Error);
}

TEST(Planner, TheCheckSeesBrokenPlans) {
  const std::vector<PlannerBuffer> buffers{{0, 0, 5, 100}, {1, 3, 9, 100}, {2, 6, 8, 30}};
  ArenaPlan plan = solve_arena(buffers);
  ASSERT_EQ(check_arena_plan(buffers, plan, 1), "");
  const ArenaPlan good = plan;
  plan.offsets[0] = plan.offsets[1] == 0 ? 99 : plan.offsets[1] - 99;
  EXPECT_NE(check_arena_plan(buffers, plan, 1), "");
  plan = good;
  plan.arena_bytes += 1;
  EXPECT_NE(check_arena_plan(buffers, plan, 1), "");
  plan = good;
  plan.offsets.pop_back();
  EXPECT_NE(check_arena_plan(buffers, plan, 1), "");
}

}  // namespace
}  // namespace bantam::testing::planner_test
