// From buffers to a problem in whole numbers, through construction and search, and back to offsets.
#include "bantam/memory/planner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/planner_placement.h"
#include "bantam/memory/planner_search.h"

namespace bantam {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

void check_input(std::span<const PlannerBuffer> buffers, std::uint64_t alignment) {
  if (alignment == 0 || alignment > kMostBytes)
    throw Error(fmt::format("planner: the alignment must be from 1 to 2^62, got {}", alignment));
  std::uint64_t sum = 0;
  for (const PlannerBuffer& b : buffers) {
    if (b.lower >= b.upper)
      throw Error(fmt::format("planner: buffer {} lives in [{}, {}), which is empty", b.id, b.lower, b.upper));
    if (b.size > kMostBytes || b.size + (alignment - 1) > kMostBytes - sum)
      throw Error(fmt::format("planner: the sizes up to buffer {} add up to more than 2^62 bytes", b.id));
    sum += b.size + (alignment - 1);
  }
}

/// The buffers of some size, and where in the input they were.
std::pair<planner::Problem, std::vector<std::size_t>> make_problem(std::span<const PlannerBuffer> buffers,
                                                                   std::uint64_t alignment) {
  planner::Problem problem;
  problem.alignment = alignment;
  std::vector<std::size_t> source;
  std::vector<std::int64_t> times;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size == 0) continue;
    source.push_back(i);
    times.push_back(buffers[i].lower);
    times.push_back(buffers[i].upper);
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto number = [&](std::int64_t time) {
    return static_cast<planner::Index>(std::ranges::lower_bound(times, time) - times.begin());
  };
  std::vector<PlannerBuffer> rounded;
  for (const std::size_t i : source) {
    problem.lower.push_back(number(buffers[i].lower));
    problem.upper.push_back(number(buffers[i].upper));
    problem.size.push_back((buffers[i].size + alignment - 1) / alignment * alignment);
    rounded.push_back({0, buffers[i].lower, buffers[i].upper, problem.size.back()});
  }
  problem.times = static_cast<planner::Index>(times.size());
  problem.time = std::move(times);
  problem.max_live = max_live_bytes(rounded);
  return {std::move(problem), std::move(source)};
}

PlannerStop why_stopped(const planner::Problem& problem, const planner::Budget& budget, std::uint64_t height,
                        const PlannerOptions& options) {
  const std::uint64_t capacity = options.capacity / options.alignment * options.alignment;
  if (height <= problem.max_live) return PlannerStop::optimal;
  if (height <= capacity) return PlannerStop::capacity;
  if (capacity < problem.max_live && height <= planner::near_bound(problem.max_live)) return PlannerStop::optimal;
  return budget.used >= options.iterations ? PlannerStop::iterations : PlannerStop::time;
}

}  // namespace

std::string_view to_string(PlannerStop stop) {
  switch (stop) {
    case PlannerStop::optimal:
      return "optimal";
    case PlannerStop::capacity:
      return "capacity";
    case PlannerStop::iterations:
      return "iterations";
    case PlannerStop::time:
      break;
  }
  return "time";
}

std::uint64_t max_live_bytes(std::span<const PlannerBuffer> buffers) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // at equal times frees come first: half-open lifetimes
  changes.reserve(buffers.size() * 2);
  for (const PlannerBuffer& b : buffers) {
    changes.emplace_back(b.lower, static_cast<std::int64_t>(b.size));
    changes.emplace_back(b.upper, -static_cast<std::int64_t>(b.size));
  }
  std::ranges::sort(changes);
  std::int64_t live = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, live += change);
  return static_cast<std::uint64_t>(most);
}

ArenaPlan solve_arena(std::span<const PlannerBuffer> buffers, const PlannerOptions& options) {
  check_input(buffers, options.alignment);
  if (options.workers < 1) throw Error(fmt::format("planner: workers must be at least 1, got {}", options.workers));
  const auto start = std::chrono::steady_clock::now();
  planner::Budget budget{.seconds = options.seconds, .iterations = options.iterations};
  const auto [problem, source] = make_problem(buffers, options.alignment);
  ArenaPlan plan;
  plan.offsets.resize(buffers.size());
  plan.max_live_bytes = max_live_bytes(buffers);
  if (problem.count() > 0) {
    const std::uint64_t capacity = options.capacity / options.alignment * options.alignment;
    budget.goal = std::max(problem.max_live, capacity);
    budget.goal_is_exact = capacity >= problem.max_live;
    planner::Placement best = planner::construct(problem, budget);
    planner::improve(problem, options.seed, options.workers, budget, best);
    for (std::size_t i = 0; i < source.size(); ++i) {
      plan.offsets[source[i]] = best.offset[i];
      plan.arena_bytes = std::max(plan.arena_bytes, best.offset[i] + buffers[source[i]].size);
    }
    plan.stop = why_stopped(problem, budget, best.height, options);
  }
  plan.iterations = budget.used;
  plan.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

std::string check_arena_plan(std::span<const PlannerBuffer> buffers, const ArenaPlan& plan, std::uint64_t alignment) {
  if (plan.offsets.size() != buffers.size()) return "the number of offsets is not that of buffers";
  std::vector<std::pair<std::int64_t, std::size_t>> begins, ends;
  std::uint64_t top = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (plan.offsets[i] % alignment != 0) return fmt::format("buffer {} is not aligned", buffers[i].id);
    if (buffers[i].size == 0) continue;
    top = std::max(top, plan.offsets[i] + buffers[i].size);
    begins.emplace_back(buffers[i].lower, i);
    ends.emplace_back(buffers[i].upper, i);
  }
  if (top != plan.arena_bytes) return fmt::format("the arena is {}, but the highest end {}", plan.arena_bytes, top);
  std::ranges::sort(begins);
  std::ranges::sort(ends);
  std::map<std::uint64_t, std::size_t> live;  // by offset
  std::size_t ended = 0;
  for (const auto& [time, i] : begins) {
    for (; ended < ends.size() && ends[ended].first <= time; ++ended) live.erase(plan.offsets[ends[ended].second]);
    const auto above = live.lower_bound(plan.offsets[i]);
    if (above != live.end() && above->first < plan.offsets[i] + buffers[i].size)
      return fmt::format("buffers {} and {} overlap", buffers[i].id, buffers[above->second].id);
    if (above != live.begin()) {
      const auto below = std::prev(above);
      if (below->first + buffers[below->second].size > plan.offsets[i])
        return fmt::format("buffers {} and {} overlap", buffers[below->second].id, buffers[i].id);
    }
    live.emplace(plan.offsets[i], i);
  }
  return "";
}

}  // namespace bantam
