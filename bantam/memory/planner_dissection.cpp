// A sweep over the drawn graph's vertices keeps the buffers alive in order; where they lie follows from that.
#include "bantam/memory/planner_dissection.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace bantam::planner {
namespace {

std::size_t at(Index index) { return static_cast<std::size_t>(index); }

double area_of(const Problem& problem, std::size_t buffer) {
  return static_cast<double>(problem.size[buffer]) * (problem.upper[buffer] - problem.lower[buffer]);
}

bool together(const Problem& problem, std::size_t a, std::size_t b) {
  return problem.lower[a] < problem.upper[b] && problem.lower[b] < problem.upper[a];
}

}  // namespace

DissectionSearch::DissectionSearch(const Problem& problem, double most_moved, std::uint64_t seed)
    : problem_(problem), random_(philox_key(seed, RandomPurpose::planner, 2)), seams_(problem, most_moved) {
  for (std::size_t i = 0; i < problem.count(); ++i) area_ += area_of(problem, i);
  best_ = dissect();
}

// Buffers on paths of seams from the first time to the last.
std::vector<Index> DissectionSearch::connected() const {
  std::vector<Index> in(at(seams_.count()), 0), out(at(seams_.count()), 0);
  std::vector<Index> buffers(problem_.count());
  std::iota(buffers.begin(), buffers.end(), 0);
  for (const Index b : buffers) {
    ++out[at(seams_.of_begin(at(b)))];
    ++in[at(seams_.of_end(at(b)))];
  }
  const auto is_loose = [&](Index b) {
    const Index begin = seams_.of_begin(at(b)), end = seams_.of_end(at(b));
    if ((begin == seams_.first() || in[at(begin)] > 0) && (end == seams_.last() || out[at(end)] > 0)) return false;
    --out[at(begin)];
    --in[at(end)];
    return true;
  };
  while (std::erase_if(buffers, is_loose) > 0) {
  }
  return buffers;
}

// By the sweep, each buffer lies on the one below it in the list; those that lie on nothing come first.
std::vector<Index> DissectionSearch::order_of(std::span<const Index> buffers, PlanarEmbedding& embedding) const {
  const std::vector<std::vector<Index>> out = embedding.out_arcs();
  std::vector<std::vector<Index>> above(buffers.size());
  std::vector<Index> below(buffers.size(), 0), live, order;
  std::vector<char> placed(buffers.size(), 0);
  for (Index seam = 0; seam < seams_.count(); ++seam) {
    const auto ends = [&](Index arc) { return seams_.of_end(at(buffers[at(arc)])) == seam; };
    if (out[at(seam)].empty()) continue;
    const auto first = std::ranges::find_if(live, ends);
    const auto place = live.erase(first, std::find_if_not(first, live.end(), ends));
    const auto begun = live.insert(place, out[at(seam)].begin(), out[at(seam)].end());
    const auto begin = begun == live.begin() ? begun : begun - 1;
    const auto end = begun + static_cast<std::ptrdiff_t>(out[at(seam)].size());
    for (auto lower = begin; lower + 1 < live.end() && lower < end; ++lower) {
      above[at(*lower)].push_back(*(lower + 1));
      ++below[at(*(lower + 1))];
    }
    for (const Index arc : out[at(seam)]) placed[at(arc)] = 1;
  }
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (placed[i] && below[i] == 0) order.push_back(static_cast<Index>(i));
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const Index arc : above[at(order[i])])
      if (--below[at(arc)] == 0) order.push_back(arc);
  for (Index& arc : order) arc = buffers[at(arc)];
  return order;
}

// Each on the highest of those before it that it meets.
void DissectionSearch::stack(Dissection& dissection) const {
  Placement& placement = dissection.placement;
  placement.offset.assign(problem_.count(), 0);
  placement.height = 0;
  dissection.placed.assign(problem_.count(), 0);
  double placed_area = 0;
  for (std::size_t k = 0; k < dissection.order.size(); ++k) {
    const std::size_t b = at(dissection.order[k]);
    std::uint64_t offset = 0;
    for (std::size_t before = 0; before < k; ++before)
      if (const std::size_t other = at(dissection.order[before]); together(problem_, b, other))
        offset = std::max(offset, placement.offset[other] + problem_.size[other]);
    placement.offset[b] = offset;
    placement.height = std::max(placement.height, offset + problem_.size[b]);
    dissection.placed[b] = 1;
    placed_area += area_of(problem_, b);
  }
  const double high = static_cast<double>(placement.height) / static_cast<double>(problem_.max_live);
  dissection.cost = 1.0 - placed_area / area_ + std::max(high - 1.0, 0.0);
}

DissectionSearch::Dissection DissectionSearch::dissect() {
  const std::vector<Index> buffers = connected();
  std::vector<Arc> arcs;
  for (const Index b : buffers) arcs.push_back({seams_.of_begin(at(b)), seams_.of_end(at(b))});
  PlanarEmbedding embedding(seams_.count(), arcs, seams_.first(), seams_.last(), random_);
  Dissection dissection;
  dissection.order = order_of(buffers, embedding);
  stack(dissection);
  return dissection;
}

// One without a place more often than another.
std::size_t DissectionSearch::some_buffer() {
  constexpr int kDraws = 30;
  std::size_t buffer = random_.below(problem_.count());
  for (int draw = 0; draw < kDraws && best_.placed[buffer] && random_.below(20) > 0; ++draw)
    buffer = random_.below(problem_.count());
  return buffer;
}

void DissectionSearch::run(Budget& budget) {
  constexpr double kSolved = 1e-9;
  constexpr double kHeat = 0.003;
  double current = best_.cost;
  const auto solved = [&] {
    return best_.order.size() == problem_.count() && (best_.placement.height <= budget.goal || best_.cost <= kSolved);
  };
  while (!solved() && budget.progress() < 1.0) {
    bool changed = false;
    for (int tries = 0; tries < 50 && !changed; ++tries) {
      const std::size_t buffer = some_buffer();
      changed = seams_.change(buffer, random_.below(2) == 0, random_);
    }
    budget.used += kIterations;
    Dissection found = dissect();
    const double heat = kHeat * (1.0 - budget.progress());
    const bool accept = found.cost <= current - heat * std::log(1.0 - static_cast<double>(random_.uniform()));
    if (accept)
      current = found.cost;
    else if (changed)
      seams_.undo();
    if (found.cost <= best_.cost) best_ = std::move(found);
  }
  cost_ = best_.cost;
  lay_rest_on_top();
}

void DissectionSearch::lay_rest_on_top() {
  placement_ = best_.placement;
  std::vector<Index> order = best_.order;
  for (std::size_t b = 0; b < problem_.count(); ++b) {
    if (best_.placed[b]) continue;
    std::uint64_t offset = best_.placement.height;
    for (const Index other : order)
      if (together(problem_, b, at(other)))
        offset = std::max(offset, placement_.offset[at(other)] + problem_.size[at(other)]);
    placement_.offset[b] = offset;
    placement_.height = std::max(placement_.height, offset + problem_.size[b]);
    order.push_back(static_cast<Index>(b));
  }
}

}  // namespace bantam::planner
