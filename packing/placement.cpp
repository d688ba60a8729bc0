// Gaps are found by a walk over what is placed, ordered by offset; the skyline is a short list of flat segments.
#include "bantam/packing/placement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace bantam::planner {
namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();

constexpr std::size_t kMostWithoutHeap = 4'096;  // up to so many buffers a look through the skyline is as fast

/// A clock is looked at once in so many buffers: rarely enough to cost nothing, often enough to be heard in time.
bool is_time_to_ask(std::size_t placed) { return placed % 256 == 255; }

std::ptrdiff_t step(std::size_t count) { return static_cast<std::ptrdiff_t>(count); }

/// Free space between what lives, found by its offset and by its size.
class FreeSpace {
 public:
  std::uint64_t allocate(std::uint64_t size) {
    const auto found = by_size_.lower_bound({size, 0});
    if (found == by_size_.end()) return std::exchange(top_, top_ + size);
    const auto [gap, offset] = *found;
    remove(offset, gap);
    if (gap > size) add(offset + size, gap - size);
    return offset;
  }
  void free(std::uint64_t offset, std::uint64_t size) {
    const auto above = by_offset_.lower_bound(offset);
    if (above != by_offset_.end() && above->first == offset + size) {
      size += above->second;
      remove(offset + size - above->second, above->second);
    }
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      const auto [below, gap] = *std::prev(after);
      if (below + gap == offset) {
        remove(below, gap);
        offset = below;
        size += gap;
      }
    }
    if (offset + size == top_)
      top_ = offset;
    else
      add(offset, size);
  }

 private:
  void add(std::uint64_t offset, std::uint64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void remove(std::uint64_t offset, std::uint64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::uint64_t top_ = 0;  // the end of the highest buffer that lives
  std::map<std::uint64_t, std::uint64_t> by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
};

}  // namespace

std::vector<Index> sorted_indices(std::vector<std::pair<std::int64_t, Index>> keyed) {
  std::ranges::sort(keyed);
  std::vector<Index> indices(keyed.size());
  std::ranges::transform(keyed, indices.begin(), [](const auto& pair) { return pair.second; });
  return indices;
}

void place_over_time(const Problem& problem, bool backwards, Placement& out) {
  const auto begin = [&](Index b) { return backwards ? -problem.upper[at(b)] : problem.lower[at(b)]; };
  const auto end = [&](Index b) { return backwards ? -problem.lower[at(b)] : problem.upper[at(b)]; };
  std::vector<Index> begins(problem.count());
  std::iota(begins.begin(), begins.end(), 0);
  std::ranges::stable_sort(begins, [&](Index a, Index b) {
    return begin(a) != begin(b) ? begin(a) < begin(b) : problem.size[at(a)] > problem.size[at(b)];
  });
  const std::vector<Index> ends =
      sorted_by_key(problem.count(), [&](std::size_t i) { return end(static_cast<Index>(i)); });
  FreeSpace space;
  out.offset.resize(problem.count());
  out.height = 0;
  auto ended = ends.begin();
  for (const Index b : begins) {
    for (; end(*ended) <= begin(b); ++ended) space.free(out.offset[at(*ended)], problem.size[at(*ended)]);
    out.offset[at(b)] = space.allocate(problem.size[at(b)]);
    out.height = std::max(out.height, out.offset[at(b)] + problem.size[at(b)]);
  }
}

bool has_few_pairs(const Problem& problem) {
  constexpr std::int64_t kMostPairs = 2'000'000;  // 32 MB of lists
  std::int64_t pairs = 0;
  each_pair(problem, [&](Index, Index) { return ++pairs <= kMostPairs; });
  return pairs <= kMostPairs;
}

GapPlacer::Block::Block() {
  std::ranges::fill(lower, std::numeric_limits<Index>::max());
  std::ranges::fill(upper, std::numeric_limits<Index>::min());
}

void GapPlacer::Block::insert(std::size_t slot, Index from, Index to, std::uint64_t bottom, std::uint64_t top) {
  const auto put = [&](auto& values, auto value) {
    std::copy_backward(values + slot, values + count, values + count + 1);
    values[slot] = value;
  };
  put(lower, from);
  put(upper, to);
  put(offset, bottom);
  put(end, top);
  ++count;
}

void GapPlacer::Block::split_into(Block& upper_half) {
  constexpr std::size_t kHalf = kSlots / 2;
  upper_half = Block();
  const auto move = [](auto& values, auto& to) { std::copy(values + kHalf, values + kSlots, to); };
  move(lower, upper_half.lower);
  move(upper, upper_half.upper);
  move(offset, upper_half.offset);
  move(end, upper_half.end);
  std::fill(lower + kHalf, lower + kSlots, std::numeric_limits<Index>::max());
  std::fill(upper + kHalf, upper + kSlots, std::numeric_limits<Index>::min());
  count = upper_half.count = kHalf;
}

std::uint64_t GapPlacer::find_gap(Index buffer, Fit fit) const {
  const std::size_t b = at(buffer);
  const Index lower = problem_.lower[b], upper = problem_.upper[b];
  const std::uint64_t size = problem_.size[b];
  std::uint64_t top = 0, best = kNone, best_gap = kNone;
  for (const std::uint32_t number : by_offset_) {
    const Block& block = blocks_[number];
    std::uint8_t together[Block::kSlots];
    for (std::size_t i = 0; i < Block::kSlots; ++i)
      together[i] = static_cast<std::uint8_t>((block.lower[i] < upper) & (block.upper[i] > lower));
    for (std::size_t eight = 0; eight < block.count; eight += 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, together + eight, sizeof bits);
      for (; bits != 0; bits &= bits - 1) {
        const std::size_t i = eight + static_cast<std::size_t>(std::countr_zero(bits)) / 8;
        if (block.offset[i] >= top && block.offset[i] - top >= size) {
          if (fit == Fit::first) return top;
          if (block.offset[i] - top < best_gap) {
            best_gap = block.offset[i] - top;
            best = top;
          }
        }
        top = std::max(top, block.end[i]);
      }
    }
  }
  return best != kNone ? best : top;
}

bool GapPlacer::list_neighbours() {
  if (!has_few_pairs(problem_)) return false;
  neighbours_.resize(problem_.count());
  each_pair(problem_, [&](Index i, Index j) {
    neighbours_[at(i)].push_back(j);
    neighbours_[at(j)].push_back(i);
    return true;
  });
  return true;
}

// A waiting neighbour's offset is kNone.
std::uint64_t GapPlacer::find_gap_among_neighbours(Index buffer, Fit fit, const Placement& out) {
  taken_.clear();
  for (const Index other : neighbours_[at(buffer)])
    if (const std::uint64_t offset = out.offset[at(other)]; offset != kNone)
      taken_.emplace_back(offset, offset + problem_.size[at(other)]);
  std::ranges::sort(taken_);
  const std::uint64_t size = problem_.size[at(buffer)];
  std::uint64_t top = 0, best = kNone, best_gap = kNone;
  for (const auto& [offset, end] : taken_) {
    if (offset >= top && offset - top >= size && offset - top < best_gap) {
      if (fit == Fit::first) return top;
      best_gap = offset - top;
      best = top;
    }
    top = std::max(top, end);
  }
  return best != kNone ? best : top;
}

// After all that lie as low.
void GapPlacer::insert(Index buffer, std::uint64_t offset) {
  const std::size_t b = at(buffer);
  if (by_offset_.empty()) {
    blocks_.emplace_back();
    by_offset_.push_back(0);
  }
  const auto above =
      std::upper_bound(by_offset_.begin() + 1, by_offset_.end(), offset,
                       [&](std::uint64_t value, std::uint32_t number) { return value < blocks_[number].offset[0]; });
  auto place = above - 1;
  if (blocks_[*place].count == Block::kSlots) {
    const auto number = static_cast<std::uint32_t>(blocks_.size());
    blocks_.emplace_back();
    blocks_[*place].split_into(blocks_.back());
    place = by_offset_.insert(above, number) - 1;
    if (blocks_[number].offset[0] <= offset) ++place;
  }
  Block& block = blocks_[*place];
  const auto slot = std::upper_bound(block.offset, block.offset + block.count, offset) - block.offset;
  block.insert(static_cast<std::size_t>(slot), problem_.lower[b], problem_.upper[b], offset, offset + problem_.size[b]);
}

void GapPlacer::place(std::span<const Index> order, Fit fit, std::uint64_t most, Placement& out, const Stop& stop) {
  const bool listed = !neighbours_.empty();
  out.offset.assign(problem_.count(), kNone);
  out.height = kNone;
  blocks_.clear();
  by_offset_.clear();
  std::uint64_t height = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t b = at(order[i]);
    const std::uint64_t offset = listed ? find_gap_among_neighbours(order[i], fit, out) : find_gap(order[i], fit);
    height = std::max(height, offset + problem_.size[b]);
    if (height > most || (is_time_to_ask(i) && stop && stop())) return;
    out.offset[b] = offset;
    if (!listed) insert(order[i], offset);
  }
  out.height = height;
}

SkylinePlacer::SkylinePlacer(const Problem& problem)
    : problem_(problem), has_heap_(problem.count() > kMostWithoutHeap) {
  const std::size_t times = at(problem.times) + 1;
  live_.resize(times);
  first_of_lower_.resize(times + 1);
  first_of_upper_.resize(times + 1);
  for (std::size_t i = 0; i < problem.count(); ++i) {
    log_life_.push_back(std::log(static_cast<double>(problem.upper[i] - problem.lower[i])));
    log_size_.push_back(std::log(static_cast<double>(problem.size[i])));
    live_[at(problem.lower[i])] += problem.size[i];
    live_[at(problem.upper[i])] -= problem.size[i];  // wraps, and wraps back in the sum
    ++first_of_lower_[at(problem.lower[i]) + 1];
    ++first_of_upper_[at(problem.upper[i]) + 1];
  }
  std::partial_sum(live_.begin(), live_.end(), live_.begin());
  std::partial_sum(first_of_lower_.begin(), first_of_lower_.end(), first_of_lower_.begin());
  std::partial_sum(first_of_upper_.begin(), first_of_upper_.end(), first_of_upper_.begin());
  by_lower_ = sorted_by_key(problem.count(), [&](std::size_t i) { return problem.lower[i]; });
  const auto upper = [&](std::size_t position) { return problem.upper[at(by_lower_[position])]; };
  for (const Index position : sorted_by_key(problem.count(), upper)) ending_.push_back(at(position));
}

// Everything waits.
void SkylinePlacer::start(const SkylineWeights& weights, std::span<const double> keys) {
  const std::size_t blocks = (problem_.count() + kBlock - 1) / kBlock;
  upper_.assign(blocks * kBlock, std::numeric_limits<Index>::max());
  value_.assign(blocks * kBlock, -std::numeric_limits<double>::infinity());
  least_upper_.resize(blocks);
  most_value_.resize(blocks);
  for (std::size_t position = 0; position < problem_.count(); ++position) {
    const std::size_t b = at(by_lower_[position]);
    upper_[position] = problem_.upper[b];
    value_[position] = weights.life * log_life_[b] + weights.size * log_size_[b] + keys[b];
  }
  for (std::size_t block = 0; block < blocks; ++block) look_over(block);
  needed_ = live_;
  skyline_.assign(1, {0, problem_.times, 0});
  heap_.clear();
  add_to_heap(0);
}

void SkylinePlacer::look_over(std::size_t block) {
  const auto first = step(block * kBlock), last = step((block + 1) * kBlock);
  least_upper_[block] = *std::min_element(upper_.begin() + first, upper_.begin() + last);
  most_value_[block] = *std::max_element(value_.begin() + first, value_.begin() + last);
}

void SkylinePlacer::remove_waiting(std::size_t position) {
  upper_[position] = std::numeric_limits<Index>::max();
  value_[position] = -std::numeric_limits<double>::infinity();
  look_over(position / kBlock);
}

// The first of the lowest.
std::size_t SkylinePlacer::lowest() {
  if (!has_heap_) {
    const auto found = std::ranges::min_element(skyline_, {}, &SkylineSegment::height);
    return static_cast<std::size_t>(found - skyline_.begin());
  }
  for (;;) {
    const auto [height, begin] = heap_.front();
    const auto found = std::ranges::lower_bound(skyline_, begin, {}, &SkylineSegment::begin);
    if (found != skyline_.end() && found->begin == begin && found->height == height)
      return static_cast<std::size_t>(found - skyline_.begin());
    std::ranges::pop_heap(heap_, std::greater<>());
    heap_.pop_back();
  }
}

void SkylinePlacer::add_to_heap(std::size_t place) {
  if (!has_heap_) return;
  heap_.emplace_back(skyline_[place].height, skyline_[place].begin);
  std::ranges::push_heap(heap_, std::greater<>());
}

std::uint64_t SkylinePlacer::height_before(std::size_t place) const {
  return place > 0 ? skyline_[place - 1].height : kNone;
}

std::uint64_t SkylinePlacer::height_after(std::size_t place) const {
  return place + 1 < skyline_.size() ? skyline_[place + 1].height : kNone;
}

// Replaces the choice by a position of more value; of equal values the earliest position wins.
void SkylinePlacer::Choice::consider(std::size_t other, double its_value) {
  if (its_value < value || (its_value == value && other > position)) return;
  position = other;
  value = its_value;
}

// Those of the positions that end before a time, by their values alone; most blocks need no look.
void SkylinePlacer::choose_inside(std::size_t begin, std::size_t end, Index before, Choice& choice) const {
  for (std::size_t position = begin; position < end;) {
    const std::size_t block = position / kBlock, block_end = std::min((block + 1) * kBlock, end);
    if (least_upper_[block] < before && most_value_[block] >= choice.value) {
      for (; position < block_end; ++position)
        if (upper_[position] < before) choice.consider(position, value_[position]);
    }
    position = block_end;
  }
}

// The position of the best buffer for the segment; kNoPlace where none fits.
std::size_t SkylinePlacer::choose(std::size_t place, const SkylineWeights& weights) const {
  const SkylineSegment segment = skyline_[place];
  const std::uint64_t before = height_before(place), after = height_after(place);
  Choice choice;
  const auto at_edge = [&](std::size_t position, bool left, bool right) {
    const std::uint64_t top = segment.height + problem_.size[at(by_lower_[position])];
    double value = value_[position] + weights.edge;
    if (left && right) value += weights.edge + weights.both_edges;
    if ((left && top == before) || (right && top == after)) value += weights.flush;
    choice.consider(position, value);
  };
  const std::size_t inside = first_of_lower_[at(segment.begin) + 1];
  for (std::size_t position = first_of_lower_[at(segment.begin)]; position < inside; ++position)
    if (upper_[position] <= segment.end) at_edge(position, true, upper_[position] == segment.end);
  for (std::size_t i = first_of_upper_[at(segment.end)]; i < first_of_upper_[at(segment.end) + 1]; ++i)
    if (ending_[i] >= inside && upper_[ending_[i]] == segment.end) at_edge(ending_[i], false, true);
  choose_inside(inside, first_of_lower_[at(segment.end)], segment.end, choice);
  return choice.position;
}

// False where some time then needs more than `most`.
bool SkylinePlacer::raise(std::size_t place, std::uint64_t most) {
  constexpr Index kCounted =
      1024;  // of a long segment only so many times are counted: less is certain, and sooner known
  const std::uint64_t before = height_before(place), after = height_after(place);
  SkylineSegment& segment = skyline_[place];
  const std::uint64_t lost = std::min(before, after) - segment.height;
  std::uint64_t needed = 0;
  for (Index t = segment.begin; t < std::min(segment.end, segment.begin + kCounted); ++t)
    needed = std::max(needed, needed_[at(t)] += lost);
  segment.height += lost;
  if (after == segment.height) {
    segment.end = skyline_[place + 1].end;
    skyline_.erase(skyline_.begin() + step(place + 1));
  }
  if (before == skyline_[place].height) {
    skyline_[place - 1].end = skyline_[place].end;
    skyline_.erase(skyline_.begin() + step(place));
  } else {
    add_to_heap(place);
  }
  return needed <= most;
}

void SkylinePlacer::put(std::size_t place, Index buffer) {
  const auto b = at(buffer);
  const SkylineSegment old = skyline_[place];
  const SkylineSegment middle{problem_.lower[b], problem_.upper[b], old.height + problem_.size[b]};
  SkylineSegment parts[3];
  std::size_t count = 0;
  if (old.begin < middle.begin) parts[count++] = {old.begin, middle.begin, old.height};
  parts[count++] = middle;
  if (middle.end < old.end) parts[count++] = {middle.end, old.end, old.height};
  skyline_[place] = parts[0];
  skyline_.insert(skyline_.begin() + step(place + 1), parts + 1, parts + count);
  for (std::size_t i = place; i < place + count; ++i) add_to_heap(i);
  // Neighbours of equal height become one segment, so that longer buffers fit there.
  for (std::size_t i = std::min(place + count, skyline_.size() - 1); i > 0 && i + 1 > place; --i) {
    if (skyline_[i - 1].height != skyline_[i].height) continue;
    skyline_[i - 1].end = skyline_[i].end;
    skyline_.erase(skyline_.begin() + step(i));
  }
}

void SkylinePlacer::place(const SkylineWeights& weights, std::span<const double> keys, std::uint64_t most,
                          Placement& out, const Stop& stop) {
  start(weights, keys);
  out.offset.resize(problem_.count());
  out.height = kNone;
  std::uint64_t height = 0;
  for (std::size_t placed = 0, steps = 0; placed < problem_.count(); ++steps) {
    if (is_time_to_ask(steps) && stop && stop()) return;
    const std::size_t place = lowest();
    const std::size_t chosen = choose(place, weights);
    if (chosen == kNoPlace) {
      if (!raise(place, most)) return;
      continue;
    }
    const Index buffer = by_lower_[chosen];
    remove_waiting(chosen);
    ++placed;
    out.offset[at(buffer)] = skyline_[place].height;
    height = std::max(height, out.offset[at(buffer)] + problem_.size[at(buffer)]);
    put(place, buffer);
  }
  if (height <= most) out.height = height;
}

}  // namespace bantam::planner
