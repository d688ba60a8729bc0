// Graphs drawn without crossings, and dissections found by them: all of a planar graph, most of another.
#include "bantam/memory/planner_embedding.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "bantam/memory/planner_dissection.h"
#include "tests/memory/planner_instances.h"

namespace bantam::testing {
namespace {

using planner::Arc;
using planner::Index;
using planner::PlanarEmbedding;

std::vector<std::vector<Index>> draw(const std::vector<Arc>& arcs, Index vertices, std::uint64_t seed) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  return PlanarEmbedding(vertices, arcs, 0, vertices - 1, random).out_arcs();
}

std::size_t drawn(const std::vector<std::vector<Index>>& out) {
  std::size_t count = 0;
  for (const auto& arcs : out) count += arcs.size();
  return count;
}

TEST(PlanarEmbedding, OneArc) {
  EXPECT_EQ(draw({{0, 1}}, 2, 1), (std::vector<std::vector<Index>>{{0}, {}}));
  EXPECT_EQ(drawn(draw({}, 2, 1)), 0u);
}

TEST(PlanarEmbedding, KeepsPathsThatMeetSideBySide) {
  // Two squares on top of each other, between a long arc and the outside; the middle arc (1) must lie between 0 and 2.
  const std::vector<Arc> arcs{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}, {1, 4}, {2, 4}, {3, 4}};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto out = draw(arcs, 5, seed);
    ASSERT_EQ(drawn(out), arcs.size());
    EXPECT_EQ(out[0][1], 1) << "seed " << seed;
    const bool turned = out[0][0] == 2;
    EXPECT_EQ(out[1], (turned ? std::vector<Index>{3, 5} : std::vector<Index>{5, 3})) << "the same side first for all";
  }
}

TEST(PlanarEmbedding, LeavesOutWhatWouldCross) {
  // K3,3 between {1, 2, 3} and {4, 5, 6}: with source and sink it cannot be drawn whole.
  std::vector<Arc> arcs;
  for (Index a = 1; a <= 3; ++a) {
    arcs.push_back({0, a});
    for (Index b = 4; b <= 6; ++b) arcs.push_back({a, b});
    arcs.push_back({static_cast<Index>(a + 3), 7});
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::size_t kept = drawn(draw(arcs, 8, seed));
    EXPECT_LT(kept, arcs.size());
    EXPECT_GE(kept, 3u) << "a path from source to sink at least";
  }
}

/// Numbers the times of an instance.
planner::Problem problem_of(const HardInstance& instance) {
  planner::Problem problem;
  for (const PlannerBuffer& b : instance.buffers) {
    problem.time.push_back(b.lower);
    problem.time.push_back(b.upper);
  }
  std::ranges::sort(problem.time);
  problem.time.erase(std::unique(problem.time.begin(), problem.time.end()), problem.time.end());
  const auto number = [&](std::int64_t time) {
    return static_cast<Index>(std::ranges::lower_bound(problem.time, time) - problem.time.begin());
  };
  for (const PlannerBuffer& b : instance.buffers) {
    problem.lower.push_back(number(b.lower));
    problem.upper.push_back(number(b.upper));
    problem.size.push_back(b.size);
  }
  problem.times = static_cast<Index>(problem.time.size());
  problem.max_live = max_live_bytes(instance.buffers);
  return problem;
}

// Nothing is searched: the first drawing is the full plan, whatever 5 % are missing of the sizes.
TEST(DissectionSearch, OneDrawingGivesTheFullPlanWhereNeighboursEndTogether) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const HardInstance instance = replace_neighbours(seed, 300, 1 << 30);
    const planner::Problem problem = problem_of(instance);
    planner::DissectionSearch search(problem, 0.0, seed);
    planner::Budget none{.iterations = 0};
    search.run(none);
    EXPECT_LE(search.placement().height, instance.capacity) << "seed " << seed;
    ArenaPlan plan{.offsets = search.placement().offset, .arena_bytes = search.placement().height};
    EXPECT_EQ(check_arena_plan(instance.buffers, plan, 1), "") << "seed " << seed;
  }
}

TEST(DissectionSearch, PlansAreValidAndRepeatedWhateverTheBuffersAre) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const HardInstance instance = seed % 2 == 0 ? cut_rectangle(seed, 200, 1 << 30, {.trim = Trim::sizes_and_lifetimes})
                                                : fill_holes(seed, 1 << 30);
    const planner::Problem problem = problem_of(instance);
    const auto place = [&] {
      planner::DissectionSearch search(problem, 0.055, seed);
      planner::Budget budget{.iterations = 40};
      search.run(budget);
      return search.placement();
    };
    const planner::Placement placement = place();
    const ArenaPlan plan{.offsets = placement.offset, .arena_bytes = placement.height};
    EXPECT_EQ(check_arena_plan(instance.buffers, plan, 1), "") << "seed " << seed;
    EXPECT_EQ(place().offset, placement.offset) << "seed " << seed;
  }
}

}  // namespace
}  // namespace bantam::testing
