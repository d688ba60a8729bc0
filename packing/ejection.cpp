// The spots of a buffer are found by a sweep over its neighbours' bottoms and tops, whose orders hardly change.
#include "bantam/packing/ejection.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bantam::planner {
namespace {

constexpr std::int64_t kPushWeight = 5;  // a twentieth of a buffer of mean area
constexpr std::int64_t kFixed = 30;      // what a look at any buffer costs, in neighbours (measured)
constexpr int kShakes = 4;               // after each insertion that pushed others out
constexpr std::int64_t kNoEdge = std::numeric_limits<std::int64_t>::max();

/// Insertion sort: linear in what is nearly sorted.
void sort_again(std::vector<Index>& order, const std::vector<std::int64_t>& keys) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Index moved = order[i];
    const std::int64_t key = keys[at(moved)];
    std::size_t hole = i;
    for (; hole > 0 && keys[at(order[hole - 1])] > key; --hole) order[hole] = order[hole - 1];
    order[hole] = moved;
  }
}

}  // namespace

EjectionSearch::EjectionSearch(const Problem& problem, const Placement& start, double area_power)
    : problem_(problem),
      random_({}),
      bottom_(problem.count()),
      top_(problem.count()),
      placed_(problem.count(), 0),
      weight_(problem.count()) {
  for (std::size_t i = 0; i < problem.count(); ++i) put(i, static_cast<Bytes>(start.offset[i]));
  list_neighbours();
  weigh(area_power);
}

// The order of the lists, too: it is the order of what is pushed out.
void EjectionSearch::follow(const EjectionSearch& other) {
  bottom_ = other.bottom_;
  top_ = other.top_;
  placed_ = other.placed_;
  weight_ = other.weight_;
  waiting_ = other.waiting_;
  by_bottom_ = other.by_bottom_;
  by_top_ = other.by_top_;
}

void EjectionSearch::list_neighbours() {
  by_bottom_.resize(problem_.count());
  each_pair(problem_, [&](Index i, Index j) {
    by_bottom_[at(i)].push_back(j);
    by_bottom_[at(j)].push_back(i);
    return true;
  });
  by_top_ = by_bottom_;
  for (auto& list : by_bottom_) std::ranges::sort(list, {}, [&](Index b) { return bottom_[at(b)]; });
  for (auto& list : by_top_) std::ranges::sort(list, {}, [&](Index b) { return top_[at(b)]; });
}

// A buffer of mean area weighs as much as twenty pushes: small ones, which find a place easily, are pushed out.
void EjectionSearch::weigh(double area_power) {
  const auto area = [&](std::size_t i) {
    return static_cast<double>(problem_.size[i]) * static_cast<double>(problem_.upper[i] - problem_.lower[i]);
  };
  double mean = 0;
  for (std::size_t i = 0; i < problem_.count(); ++i) mean += area(i) / static_cast<double>(problem_.count());
  for (std::size_t i = 0; i < problem_.count(); ++i)
    weight_[i] = 1 + static_cast<std::int64_t>(100.0 * std::pow(area(i) / mean, area_power));
}

void EjectionSearch::put(std::size_t buffer, Bytes offset) {
  bottom_[buffer] = offset;
  top_[buffer] = offset + static_cast<Bytes>(problem_.size[buffer]);
  placed_[buffer] = 1;
}

void EjectionSearch::remove(std::size_t buffer) {
  placed_[buffer] = 0;
  waiting_.push_back(buffer);
}

bool EjectionSearch::fit_into(std::uint64_t arena, std::uint64_t seed, Budget& budget) {
  arena_ = static_cast<Bytes>(arena);
  random_ = PhiloxSequence(philox_key(seed, RandomPurpose::planner, 1));
  for (std::size_t i = 0; i < problem_.count(); ++i)
    if (placed_[i] && top_[i] > arena_) remove(i);
  while (!waiting_.empty()) {
    if (budget.spent()) return false;
    ++budget.used;
    for (looks_ = 0; looks_ < kLooks && !waiting_.empty();) insert_one();
  }
  let_down();
  return true;
}

// The heaviest of a few at random: the light ones would only be pushed out again.
std::size_t EjectionSearch::take_waiting() {
  std::size_t chosen = random_.below(waiting_.size());
  for (int other = 0; other < 3; ++other) {
    const std::size_t i = random_.below(waiting_.size());
    if (weight_[waiting_[i]] > weight_[waiting_[chosen]]) chosen = i;
  }
  const std::size_t buffer = waiting_[chosen];
  waiting_[chosen] = waiting_.back();
  waiting_.pop_back();
  return buffer;
}

// Passes where the buffer may lie in each gap between placed neighbours, lowest first, until `use` returns false.
template <typename Use>
void EjectionSearch::each_gap(std::size_t buffer, Use use) {
  const auto size = static_cast<Bytes>(problem_.size[buffer]);
  sort_again(by_bottom_[buffer], bottom_);
  Bytes top = 0;
  for (const Index other : by_bottom_[buffer]) {
    if (!placed_[at(other)]) continue;
    if (bottom_[at(other)] - top >= size && !use(top, bottom_[at(other)] - size)) return;
    top = std::max(top, top_[at(other)]);
  }
  if (arena_ - top >= size) use(top, arena_ - size);
}

void EjectionSearch::insert_one() {
  const std::size_t buffer = take_waiting();
  const Spot spot = lightest_spot(buffer);
  put(buffer, spot.offset);
  if (spot.weight == 0) return;
  weight_[buffer] += kPushWeight;
  for (const Index other : by_bottom_[buffer]) {
    if (bottom_[at(other)] >= top_[buffer]) break;
    if (placed_[at(other)] && top_[at(other)] > bottom_[buffer]) remove(at(other));
  }
  for (int times = kShakes; times > 0; --times) shake_beside(buffer);
}

// Moves a neighbour to either end of any gap, its own included: the same pushes would else follow each other in a
// circle, and what was just pushed out finds room where neighbours moved.
void EjectionSearch::shake_beside(std::size_t inserted) {
  const std::vector<Index>& neighbours = by_bottom_[inserted];
  const std::size_t buffer = at(neighbours[random_.below(neighbours.size())]);
  if (!placed_[buffer]) return;
  // One list instead of two: two thirds of a spot's work (measured).
  looks_ += (kFixed + static_cast<std::int64_t>(by_bottom_[buffer].size())) * 2 / 3;
  ties_.clear();
  each_gap(buffer, [&](Bytes lowest, Bytes highest) {
    ties_.push_back(lowest);
    if (lowest < highest) ties_.push_back(highest);
    return true;
  });
  put(buffer, ties_[random_.below(ties_.size())]);
}

// Lists the keys, less `shift`, of the placed buffers in `order`, in order.
void EjectionSearch::list_edges(std::vector<Index>& order, const std::vector<Bytes>& keys, Bytes shift,
                                std::vector<Edge>& edges) const {
  sort_again(order, keys);
  edges.clear();
  for (const Index b : order)
    if (placed_[at(b)]) edges.push_back({keys[at(b)] - shift, weight_[at(b)]});
  edges.push_back({kNoEdge, 0});
}

// At an offset x, those with bottom - size < x < top are in the way. The sum of their weights is least at 0, at the
// arena's end, just below a bottom or on a top; of equals one is drawn.
EjectionSearch::Spot EjectionSearch::lightest_spot(std::size_t buffer) {
  looks_ += kFixed + static_cast<std::int64_t>(by_bottom_[buffer].size());
  const auto size = static_cast<Bytes>(problem_.size[buffer]);
  list_edges(by_bottom_[buffer], bottom_, size, begins_);
  list_edges(by_top_[buffer], top_, 0, ends_);
  const Bytes last = arena_ - size;
  const Edge *begin = begins_.data(), *end = ends_.data();
  std::int64_t weight = 0, least = kNoEdge;
  const auto consider = [&](Bytes offset) {
    if (weight > least) return;
    if (weight < least) ties_.clear();
    least = weight;
    ties_.push_back(offset);
  };
  for (; begin->offset < 0; ++begin) weight += begin->weight;
  for (Bytes offset = 0;; offset = std::min({begin->offset, end->offset, last})) {
    for (; end->offset == offset; ++end) weight -= end->weight;
    consider(offset);
    if (offset == last) break;
    for (; begin->offset == offset; ++begin) weight += begin->weight;
  }
  return {ties_[random_.below(ties_.size())], least};
}

// Each into the lowest gap among those that lay lower: often below the arena that was asked for.
void EjectionSearch::let_down() {
  const std::vector<Index> order = sorted_by_key(problem_.count(), [&](std::size_t i) { return bottom_[i]; });
  std::ranges::fill(placed_, 0);
  for (const Index buffer : order)
    each_gap(at(buffer), [&](Bytes lowest, Bytes) {
      put(at(buffer), lowest);
      return false;
    });
}

Placement EjectionSearch::placement() const {
  Placement result;
  result.height = static_cast<std::uint64_t>(*std::ranges::max_element(top_));
  for (const Bytes bottom : bottom_) result.offset.push_back(static_cast<std::uint64_t>(bottom));
  return result;
}

}  // namespace bantam::planner
