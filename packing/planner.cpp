// From buffers to a problem in whole numbers, through construction and search, and back to offsets.
#include "bantam/packing/planner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/packing/placement.h"
#include "bantam/packing/search.h"

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

/// Buffers of some size, and where in the input they are.
struct Section {
  std::vector<std::size_t> source;
  planner::Problem problem;
  planner::Placement placement;
};

/// The buffers of some size, parted at times that no buffer lives across: each part has the arena to itself.
std::vector<Section> part_at_gaps(std::span<const PlannerBuffer> buffers) {
  std::vector<Section> sections;
  std::int64_t end = 0;
  for (const planner::Index index :
       planner::sorted_by_key(buffers.size(), [&](std::size_t i) { return buffers[i].lower; })) {
    const std::size_t i = planner::at(index);
    if (buffers[i].size == 0) continue;
    if (sections.empty() || buffers[i].lower >= end) {
      sections.emplace_back();
      end = buffers[i].upper;
    }
    sections.back().source.push_back(i);
    end = std::max(end, buffers[i].upper);
  }
  for (Section& section : sections) std::ranges::sort(section.source);
  return sections;
}

planner::Problem make_problem(std::span<const PlannerBuffer> buffers, std::span<const std::size_t> source,
                              std::uint64_t alignment) {
  planner::Problem problem;
  problem.alignment = alignment;
  std::vector<std::int64_t> times;
  for (const std::size_t i : source) {
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
  problem.max_live = max_live_bytes(rounded);
  return problem;
}

/// All sections in one arena: constructed, then improved, always the highest one, which has an even share of what is
/// left of the budget.
class SectionsSolver {
 public:
  SectionsSolver(std::vector<Section>& sections, const PlannerOptions& options)
      : sections_(sections),
        options_(options),
        capacity_(options.capacity / options.alignment * options.alignment),
        budget_{.seconds = options.seconds, .iterations = options.iterations} {
    for (const Section& section : sections) bound_ = std::max(bound_, section.problem.max_live);
    budget_.goal = std::max(bound_, capacity_);
    budget_.goal_is_exact = capacity_ >= bound_;
  }

  PlannerStop run() {
    for (Section& section : sections_) section.placement = planner::construct(section.problem, budget_);
    const std::uint64_t good = budget_.goal_is_exact ? budget_.goal : planner::near_bound(bound_);
    while (highest().placement.height > good && !budget_.spent()) improve(highest(), good);
    const std::uint64_t arena = highest().placement.height;
    if (arena <= bound_) return PlannerStop::optimal;
    if (arena <= capacity_) return PlannerStop::capacity;
    if (arena <= good) return PlannerStop::optimal;
    return budget_.used >= budget_.iterations ? PlannerStop::iterations : PlannerStop::time;
  }

  std::int64_t iterations() const { return budget_.used; }

 private:
  Section& highest() const {
    return *std::ranges::max_element(sections_, {}, [](const Section& section) { return section.placement.height; });
  }

  // One that is the highest again gets its share of the rest, and other random choices.
  void improve(Section& section, std::uint64_t good) {
    const auto open = std::ranges::count_if(sections_, [&](const Section& s) { return s.placement.height > good; });
    const std::int64_t least = std::max<std::int64_t>(1, options_.iterations / 10),
                       left = budget_.iterations - budget_.used;
    const double before = budget_.elapsed();
    planner::Budget part = budget_;
    part.used = 0;
    part.iterations = std::min(left, std::max(least, left / open));
    // The time may have ended since it was asked for, and 0 would be no limit.
    if (part.seconds > 0) part.seconds = std::max(budget_.seconds - before, 1e-9) / static_cast<double>(open);
    part.go_on_here(0);
    planner::improve(section.problem, options_.seed + round_++, options_.workers, part, section.placement);
    budget_.used += std::max<std::int64_t>(part.used, 1);
    budget_.go_on_here(before + part.elapsed());
  }

  std::vector<Section>& sections_;
  const PlannerOptions& options_;
  std::uint64_t capacity_, bound_ = 0;
  std::uint64_t round_ = 0;
  planner::Budget budget_;
};

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
  std::vector<Section> sections = part_at_gaps(buffers);
  ArenaPlan plan;
  plan.offsets.resize(buffers.size());
  plan.max_live_bytes = max_live_bytes(buffers);
  for (Section& section : sections) section.problem = make_problem(buffers, section.source, options.alignment);
  if (!sections.empty()) {
    SectionsSolver solver(sections, options);
    plan.stop = solver.run();
    plan.iterations = solver.iterations();
  }
  for (const Section& section : sections)
    for (std::size_t i = 0; i < section.source.size(); ++i) {
      const std::size_t at = section.source[i];
      plan.offsets[at] = section.placement.offset[i];
      plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[at] + buffers[at].size);
    }
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
