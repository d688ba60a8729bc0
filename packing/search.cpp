// Constructed orders; and a search in which the skyline's choices are changed at random and annealed.
#include "bantam/packing/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <time.h>

#include "bantam/base/philox.h"

namespace bantam::planner {
namespace {

constexpr std::size_t kMany = 4'096;  // with more buffers than this one order may be slow

using Key = std::function<double(std::size_t)>;

/// Largest key first; of equals the larger buffer, then the earlier one.
std::vector<Index> sorted_by(const Problem& problem, const Key& key) {
  std::vector<double> keys(problem.count());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = key(i);
  std::vector<Index> order(problem.count());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](Index a, Index b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    return keys[i] != keys[j] ? keys[i] > keys[j] : problem.size[i] > problem.size[j];
  });
  return order;
}

/// For each buffer the most bytes alive at one time of its life.
std::vector<double> contention(const Problem& problem) {
  std::vector<double> live(static_cast<std::size_t>(problem.times) + 1, 0.0);
  for (std::size_t i = 0; i < problem.count(); ++i) {
    live[static_cast<std::size_t>(problem.lower[i])] += static_cast<double>(problem.size[i]);
    live[static_cast<std::size_t>(problem.upper[i])] -= static_cast<double>(problem.size[i]);
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  std::vector<double> most(problem.count());
  for (std::size_t i = 0; i < problem.count(); ++i)
    most[i] = *std::max_element(live.begin() + problem.lower[i], live.begin() + problem.upper[i]);
  return most;
}

constexpr std::ptrdiff_t kContention = 4;  // the index of the order that is best for many buffers

std::vector<std::vector<Index>> constructed_orders(const Problem& problem) {
  const auto size = [&](std::size_t i) { return static_cast<double>(problem.size[i]); };
  const auto life = [&](std::size_t i) { return static_cast<double>(problem.upper[i] - problem.lower[i]); };
  const std::vector<double> most = contention(problem);
  const double scale = 1.0 + *std::ranges::max_element(most);
  return {sorted_by(problem, life),
          sorted_by(problem, size),
          sorted_by(problem, [&](std::size_t i) { return size(i) * life(i); }),
          sorted_by(problem, [&](std::size_t i) { return std::sqrt(size(i)) * life(i); }),
          sorted_by(problem, [&](std::size_t i) { return most[i] + size(i) / scale; }),
          sorted_by(problem, [&](std::size_t i) { return -static_cast<double>(problem.lower[i]); }),
          sorted_by(problem, [&](std::size_t i) { return static_cast<double>(problem.upper[i]); })};
}

/// The constructed orders, the best of which is kept, until the goal is reached. Of many buffers, of which one order
/// may need more than the time, the quick ones come first, and a part of the time is reserved for the search.
class Construction {
 public:
  Construction(const Problem& problem, const Budget& budget)
      : problem_(problem), budget_(budget), is_large_(problem.count() > kMany) {}

  Placement run() {
    if (is_large_) {
      for (const bool backwards : {false, true}) {
        place_over_time(problem_, backwards, placement_);
        if (keep()) return best_;
      }
      const bool few_neighbours = gaps_.list_neighbours();  // then gaps are quickly found
      if (few_neighbours ? place_at_gaps() : fill_skylines()) return best_;
      few_neighbours ? fill_skylines() : place_at_gaps();
    } else if (!place_at_gaps()) {
      fill_skylines();
    }
    return best_;
  }

 private:
  static constexpr double kShare = 0.75;  // the share of the time that many buffers may use here

  bool keep() {
    if (placement_.height < best_.height) best_ = placement_;
    return best_.height <= budget_.goal;
  }

  bool is_over() const { return budget_.is_over(is_large_ ? kShare : 1.0); }

  // Both return whether the search is finished.
  bool place_at_gaps() {
    std::vector<std::vector<Index>> orders = constructed_orders(problem_);
    if (is_large_) std::rotate(orders.begin(), orders.begin() + kContention, orders.end());
    for (const std::vector<Index>& order : orders)
      for (const Fit fit : is_large_ ? std::array{Fit::best, Fit::first} : std::array{Fit::first, Fit::best}) {
        gaps_.place(order, fit, best_.height, placement_, stop());
        if (keep() || is_over()) return true;
      }
    return false;
  }

  bool fill_skylines() {
    SkylinePlacer skyline(problem_);
    const std::vector<double> no_keys(problem_.count(), 0.0);
    for (const SkylineWeights& weights :
         {SkylineWeights{}, SkylineWeights{1, 0, 0, 0, 0}, SkylineWeights{0.3, 1, 4, 4, 2}}) {
      skyline.place(weights, no_keys, best_.height, placement_, stop());
      if (keep() || is_over()) return true;
    }
    return false;
  }

  // None for the first placement.
  Stop stop() const {
    if (best_.offset.empty()) return {};
    return [this] { return is_over(); };
  }

  const Problem& problem_;
  const Budget& budget_;
  bool is_large_;
  GapPlacer gaps_{problem_};
  Placement best_, placement_;
};

/// Two stages: weights of the skyline's choice at random, with noise on the buffers; then the noise of a few buffers at
/// a time, annealed.
class SkylineSearch {
 public:
  SkylineSearch(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best)
      : problem_(problem),
        budget_(budget),
        best_(best),
        random_(philox_key(seed, RandomPurpose::planner)),
        skyline_(problem),
        stop_([&budget] { return budget.spent(); }) {}

  void run() {
    constexpr double kShare = 0.1;  // the first stage's share of the budget
    trial_keys_.assign(problem_.count(), 0.0);
    while (next() && progress_ < kShare) try_weights();
    if (keys_.empty()) {  // the constructed plan was better than any so far: go on from plain weights
      keys_.assign(problem_.count(), 0.0);
      weights_ = {};
    }
    skyline_.place(weights_, keys_, kNoHeight, placement_, stop_);
    if (placement_.height == kNoHeight) return;
    height_ = placement_.height;
    cost_ = cost(placement_);
    while (next()) try_keys();
  }

 private:
  static constexpr std::uint64_t kNoHeight = std::numeric_limits<std::uint64_t>::max();

  bool next() {
    progress_ = budget_.progress();
    if (best_.height <= budget_.goal || progress_ >= 1.0) return false;
    ++budget_.used;
    return true;
  }

  float around(float half) { return random_.uniform(-half, half); }

  void try_weights() {
    SkylineWeights weights{random_.uniform(0.0f, 1.5f), random_.uniform(-0.3f, 1.0f), random_.uniform(0.0f, 4.0f),
                           random_.uniform(0.0f, 4.0f), random_.uniform(0.0f, 4.0f)};
    double noise = random_.uniform();
    if (!keys_.empty() && random_.below(2) == 0) {
      weights = {weights_.life + around(0.2f), weights_.size + around(0.2f), weights_.edge + around(0.2f),
                 weights_.both_edges + around(0.2f), weights_.flush + around(0.2f)};
      noise = noise_ * random_.uniform(0.5f, 1.2f);
    }
    for (double& key : trial_keys_) key = noise * random_.uniform();
    skyline_.place(weights, trial_keys_, height_ - 1, placement_, stop_);
    if (placement_.height == kNoHeight) return;
    height_ = placement_.height;
    weights_ = weights;
    noise_ = noise;
    keys_ = trial_keys_;
    keep_if_best(problem_, placement_, best_, stop_);
  }

  void try_keys() {
    trial_keys_ = keys_;
    for (std::uint64_t changes = 1 + random_.below(4); changes > 0; --changes)
      trial_keys_[random_.below(trial_keys_.size())] = around(2.5f);
    const std::uint64_t room = (height_ - std::min(height_, problem_.max_live)) / 4;
    skyline_.place(weights_, trial_keys_, height_ + room, placement_, stop_);
    if (placement_.height == kNoHeight) return;
    const double trial_cost = cost(placement_);
    const double heat = 0.015 * cost_ * (1.0 - progress_);
    if (trial_cost > cost_ - heat * std::log(1.0 - static_cast<double>(random_.uniform()))) return;
    cost_ = trial_cost;
    height_ = placement_.height;
    keys_.swap(trial_keys_);
    keep_if_best(problem_, placement_, best_, stop_);
  }

  /// Height above the bound, and the mean over time of bytes that stick out above it: fewer of those at equal height
  /// is a step towards a lower arena.
  double cost(const Placement& placement) const {
    double sum = 0;
    for (std::size_t i = 0; i < problem_.count(); ++i) {
      const std::uint64_t end = placement.offset[i] + problem_.size[i];
      if (end > problem_.max_live)
        sum += static_cast<double>(end - problem_.max_live) * (problem_.upper[i] - problem_.lower[i]);
    }
    return static_cast<double>(placement.height - problem_.max_live) + 2.0 * sum / problem_.times;
  }

  const Problem& problem_;
  Budget& budget_;
  Placement& best_;
  PhiloxSequence random_;
  SkylinePlacer skyline_;
  Stop stop_;
  double progress_ = 0;
  SkylineWeights weights_;  // the current solution: weights, keys, its height and cost
  double noise_ = 0;
  std::vector<double> keys_, trial_keys_;
  std::uint64_t height_ = kNoHeight;
  double cost_ = 0;
  Placement placement_;
};

}  // namespace

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void keep_if_best(const Problem& problem, const Placement& found, Placement& best, const Stop& stop) {
  if (found.height >= best.height) return;
  best = found;
  const std::vector<Index> order = sorted_by_key(problem.count(), [&](std::size_t i) { return found.offset[i]; });
  Placement lower;
  GapPlacer gaps(problem);
  if (problem.count() > kMany) gaps.list_neighbours();
  gaps.place(order, Fit::first, found.height, lower, stop);
  if (lower.height <= best.height) best = std::move(lower);
}

Placement construct(const Problem& problem, Budget& budget) { return Construction(problem, budget).run(); }

void search_skyline(const Problem& problem, std::uint64_t seed, Budget& budget, Placement& best) {
  SkylineSearch(problem, seed, budget, best).run();
}

}  // namespace bantam::planner
