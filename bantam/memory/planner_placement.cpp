// Gaps are found by a walk over what is placed, ordered by offset; the skyline is a short list of flat stretches.
#include "bantam/memory/planner_placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bantam::planner {
namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();

std::ptrdiff_t step(std::size_t count) { return static_cast<std::ptrdiff_t>(count); }

}  // namespace

std::uint64_t GapPlacer::find_gap(Index buffer, Fit fit) const {
  const auto b = static_cast<std::size_t>(buffer);
  const Index lower = problem_.lower[b], upper = problem_.upper[b];
  const std::uint64_t size = problem_.size[b];
  std::uint64_t top = 0, best = kNone, best_gap = kNone;
  for (const Placed& placed : placed_) {
    if (placed.lower >= upper || placed.upper <= lower) continue;
    if (placed.offset >= top && placed.offset - top >= size) {
      if (fit == Fit::first) return top;
      if (placed.offset - top < best_gap) {
        best_gap = placed.offset - top;
        best = top;
      }
    }
    top = std::max(top, placed.end);
  }
  return best != kNone ? best : top;
}

void GapPlacer::place(std::span<const Index> order, Fit fit, std::uint64_t most, Placement& out) {
  out.offset.resize(problem_.count());
  placed_.clear();
  std::uint64_t height = 0;
  for (const Index buffer : order) {
    const auto b = static_cast<std::size_t>(buffer);
    const std::uint64_t offset = find_gap(buffer, fit);
    const Placed placed{offset, offset + problem_.size[b], problem_.lower[b], problem_.upper[b]};
    height = std::max(height, placed.end);
    if (height > most) {
      out.height = kNone;
      return;
    }
    out.offset[b] = offset;
    auto at = placed_.end();
    while (at != placed_.begin() && (at - 1)->offset > offset) --at;
    placed_.insert(at, placed);
  }
  out.height = height;
}

SkylinePlacer::SkylinePlacer(const Problem& problem) : problem_(problem), value_(problem.count()) {
  live_.resize(static_cast<std::size_t>(problem.times) + 1);
  for (std::size_t i = 0; i < problem.count(); ++i) {
    log_life_.push_back(std::log(static_cast<double>(problem.upper[i] - problem.lower[i])));
    log_size_.push_back(std::log(static_cast<double>(problem.size[i])));
    live_[static_cast<std::size_t>(problem.lower[i])] += problem.size[i];
    live_[static_cast<std::size_t>(problem.upper[i])] -= problem.size[i];  // wraps, and wraps back in the sum
  }
  std::partial_sum(live_.begin(), live_.end(), live_.begin());
  by_lower_.resize(problem.count());
  std::iota(by_lower_.begin(), by_lower_.end(), 0);
  std::ranges::stable_sort(by_lower_, {}, [&](Index b) { return problem.lower[static_cast<std::size_t>(b)]; });
}

std::size_t SkylinePlacer::lowest() const {
  const auto found = std::ranges::min_element(skyline_, {}, &Stretch::height);
  return static_cast<std::size_t>(found - skyline_.begin());
}

std::uint64_t SkylinePlacer::height_before(std::size_t at) const { return at > 0 ? skyline_[at - 1].height : kNone; }

std::uint64_t SkylinePlacer::height_behind(std::size_t at) const {
  return at + 1 < skyline_.size() ? skyline_[at + 1].height : kNone;
}

// The place in waiting_ of the best buffer for the stretch; kNoPlace where none fits.
std::size_t SkylinePlacer::choose(std::size_t at, const SkylineWeights& weights) const {
  const Stretch stretch = skyline_[at];
  const std::uint64_t before = height_before(at), behind = height_behind(at);
  const auto lower_of = [&](Index b) { return problem_.lower[static_cast<std::size_t>(b)]; };
  const auto first = std::ranges::lower_bound(waiting_, stretch.begin, {}, lower_of);
  std::size_t best = kNoPlace;
  double best_value = 0;
  for (auto it = first; it != waiting_.end() && lower_of(*it) < stretch.end; ++it) {
    const auto b = static_cast<std::size_t>(*it);
    if (problem_.upper[b] > stretch.end) continue;
    const bool left = problem_.lower[b] == stretch.begin, right = problem_.upper[b] == stretch.end;
    const std::uint64_t top = stretch.height + problem_.size[b];
    double value = value_[b];
    if (left || right) value += weights.edge;
    if (left && right) value += weights.edge + weights.both_edges;
    if ((left && top == before) || (right && top == behind)) value += weights.flush;
    if (best != kNoPlace && value <= best_value) continue;
    best = static_cast<std::size_t>(it - waiting_.begin());
    best_value = value;
  }
  return best;
}

// False where some time then needs more than `most`.
bool SkylinePlacer::raise(std::size_t at, std::uint64_t most) {
  const std::uint64_t before = height_before(at), behind = height_behind(at);
  Stretch& stretch = skyline_[at];
  const std::uint64_t lost = std::min(before, behind) - stretch.height;
  std::uint64_t needed = 0;
  for (Index t = stretch.begin; t < stretch.end; ++t)
    needed = std::max(needed, needed_[static_cast<std::size_t>(t)] += lost);
  stretch.height += lost;
  if (behind == stretch.height) {
    stretch.end = skyline_[at + 1].end;
    skyline_.erase(skyline_.begin() + step(at + 1));
  }
  if (before == skyline_[at].height) {
    skyline_[at - 1].end = skyline_[at].end;
    skyline_.erase(skyline_.begin() + step(at));
  }
  return needed <= most;
}

void SkylinePlacer::put(std::size_t at, Index buffer) {
  const auto b = static_cast<std::size_t>(buffer);
  const Stretch old = skyline_[at];
  const Stretch middle{problem_.lower[b], problem_.upper[b], old.height + problem_.size[b]};
  Stretch parts[3];
  std::size_t count = 0;
  if (old.begin < middle.begin) parts[count++] = {old.begin, middle.begin, old.height};
  parts[count++] = middle;
  if (middle.end < old.end) parts[count++] = {middle.end, old.end, old.height};
  skyline_[at] = parts[0];
  skyline_.insert(skyline_.begin() + step(at + 1), parts + 1, parts + count);
  // Neighbours of equal height become one stretch, so that longer buffers fit there.
  for (std::size_t i = std::min(at + count, skyline_.size() - 1); i > 0 && i + 1 > at; --i) {
    if (skyline_[i - 1].height != skyline_[i].height) continue;
    skyline_[i - 1].end = skyline_[i].end;
    skyline_.erase(skyline_.begin() + step(i));
  }
}

void SkylinePlacer::place(const SkylineWeights& weights, std::span<const double> keys, std::uint64_t most,
                          Placement& out) {
  for (std::size_t i = 0; i < problem_.count(); ++i)
    value_[i] = weights.life * log_life_[i] + weights.size * log_size_[i] + keys[i];
  out.offset.resize(problem_.count());
  out.height = kNone;
  needed_ = live_;
  waiting_ = by_lower_;
  skyline_.assign(1, {0, problem_.times, 0});
  std::uint64_t height = 0;
  while (!waiting_.empty()) {
    const std::size_t at = lowest();
    const std::size_t chosen = choose(at, weights);
    if (chosen == kNoPlace) {
      if (!raise(at, most)) return;
      continue;
    }
    const Index buffer = waiting_[chosen];
    waiting_.erase(waiting_.begin() + step(chosen));
    const auto b = static_cast<std::size_t>(buffer);
    out.offset[b] = skyline_[at].height;
    height = std::max(height, out.offset[b] + problem_.size[b]);
    put(at, buffer);
  }
  if (height <= most) out.height = height;
}

}  // namespace bantam::planner
