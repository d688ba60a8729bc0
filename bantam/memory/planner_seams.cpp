// Loose ends are first moved in small sets that balance a seam, best sets first; then one by one.
#include "bantam/memory/planner_seams.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace bantam::planner {
namespace {

constexpr double kBalanced = 0.055;  // sizes may be cut short, too: by up to some 5 %
constexpr std::size_t kMostNear = 10, kMostInSet = 4;

std::size_t at(Index index) { return static_cast<std::size_t>(index); }

}  // namespace

double Seams::Sums::unbalance() const {
  const double most = std::max(begins, ends);
  return most > 0 ? std::abs(begins - ends) / most : 0;
}

Seams::Seams(const Problem& problem, double most_moved)
    : problem_(problem),
      sums_(at(problem.times)),
      reach_(at(problem.times), std::numeric_limits<double>::max()),
      loose_(at(problem.times), Loose::no),
      moved_to_(at(problem.times)),
      second_(at(problem.times)),
      begin_(problem.count()),
      end_(problem.count()) {
  for (std::size_t i = 0; i < problem.count(); ++i) {
    const std::size_t lower = at(problem.lower[i]), upper = at(problem.upper[i]);
    sums_[lower].begins += static_cast<double>(problem.size[i]);
    sums_[upper].ends += static_cast<double>(problem.size[i]);
    const double reach = most_moved * between(problem.lower[i], problem.upper[i]);
    reach_[lower] = std::min(reach_[lower], reach);
    reach_[upper] = std::min(reach_[upper], reach);
  }
  for (std::size_t t = 1; t + 1 < at(problem.times); ++t) {
    if (sums_[t].begins == 0) loose_[t] = Loose::end;
    if (sums_[t].ends == 0) loose_[t] = Loose::begin;
  }
  std::iota(moved_to_.begin(), moved_to_.end(), 0);
  if (most_moved > 0) {
    match_sets();
    match_rest(false);
    match_rest(true);
    match_borders();
  }
  number();
}

double Seams::between(Index a, Index b) const {
  return std::abs(static_cast<double>(problem_.time[at(a)]) - static_cast<double>(problem_.time[at(b)]));
}

// Outwards: an end to a later time, a begin to an earlier one.
bool Seams::may_move(Index loose, Index to) const {
  const Loose kind = loose_[at(loose)];
  return kind != Loose::no && (kind == Loose::end ? to > loose : to < loose) && between(loose, to) <= reach_[at(loose)];
}

// The nearest loose ends that may move to a time, but no end to where only others end.
std::vector<Index> Seams::loose_near(Index time) const {
  constexpr Index kSteps = 40;
  std::vector<Index> near;
  for (Index t = std::max(1, time - kSteps); t < std::min(problem_.times - 1, time + kSteps); ++t)
    if (may_move(t, time) && loose_[at(t)] != loose_[at(time)]) near.push_back(t);
  std::ranges::stable_sort(near, {}, [&](Index t) { return std::abs(t - time); });
  near.resize(std::min(near.size(), kMostNear));
  return near;
}

void Seams::add_moves(Index time, std::vector<Move>& moves) const {
  const std::vector<Index> near = loose_near(time);
  for (unsigned set = 1; set < 1u << near.size(); ++set) {
    const auto members = static_cast<std::size_t>(std::popcount(set));
    if (members > kMostInSet) continue;
    Move move{.cost = 0.015 * static_cast<double>(members - 1), .time = time, .loose = {}};
    Sums sums = sums_[at(time)];
    for (std::size_t i = 0; i < near.size(); ++i) {
      if ((set >> i & 1) == 0) continue;
      sums.begins += sums_[at(near[i])].begins;
      sums.ends += sums_[at(near[i])].ends;
      move.cost += 0.003 * between(near[i], time) / reach_[at(near[i])];
      move.loose.push_back(near[i]);
    }
    move.cost += sums.unbalance();
    if (sums.unbalance() <= std::min(kBalanced, sums_[at(time)].unbalance())) moves.push_back(std::move(move));
  }
}

void Seams::match_sets() {
  std::vector<Move> moves;
  for (Index t = 1; t + 1 < problem_.times; ++t) add_moves(t, moves);
  std::ranges::stable_sort(moves, {}, &Move::cost);
  std::vector<char> matched(moved_to_.size(), 0);
  for (const Move& move : moves) {
    const auto is_matched = [&](Index t) { return matched[at(t)] != 0; };
    if (is_matched(move.time) || std::ranges::any_of(move.loose, is_matched)) continue;
    matched[at(move.time)] = 1;
    for (const Index t : move.loose) {
      matched[at(t)] = 1;
      moved_to_[at(t)] = move.time;
    }
  }
}

// Each loose end that is still alone goes to the seam that it unbalances least.
void Seams::match_rest(bool any_balance) {
  std::vector<Sums> sums(sums_.size());
  std::vector<Index> members(sums_.size(), 0);
  for (std::size_t t = 0; t < sums_.size(); ++t) {
    const std::size_t to = at(moved_to_[t]);
    sums[to].begins += sums_[t].begins;
    sums[to].ends += sums_[t].ends;
    ++members[to];
  }
  for (Index t = 1; t + 1 < problem_.times; ++t) {
    if (loose_[at(t)] == Loose::no || moved_to_[at(t)] != t || members[at(t)] > 1) continue;
    const Index step = loose_[at(t)] == Loose::end ? 1 : -1;
    Index best = -1;
    double best_cost = std::numeric_limits<double>::max();
    for (Index near = t + step; near > 0 && near + 1 < problem_.times && may_move(t, near); near += step) {
      const Index to = moved_to_[at(near)];
      if (to == t || (to - t) * step < 0) continue;
      const Sums both{sums[at(to)].begins + sums_[at(t)].begins, sums[at(to)].ends + sums_[at(t)].ends};
      if (both.begins == 0 || both.ends == 0 || (!any_balance && both.unbalance() > kBalanced)) continue;
      const double worse = std::max(both.unbalance() - sums[at(to)].unbalance(), 0.0);
      const double cost = any_balance ? both.unbalance() : worse + 0.01 * between(t, near) / reach_[at(t)];
      if (cost >= best_cost) continue;
      best = to;
      best_cost = cost;
    }
    if (best < 0) continue;
    moved_to_[at(t)] = best;
    sums[at(best)].begins += sums_[at(t)].begins;
    sums[at(best)].ends += sums_[at(t)].ends;
    ++members[at(best)];
  }
}

void Seams::match_borders() {
  std::vector<Index> members(sums_.size(), 0);
  for (const Index to : moved_to_) ++members[at(to)];
  for (Index t = 1; t + 1 < problem_.times; ++t) {
    if (moved_to_[at(t)] != t || members[at(t)] > 1 || loose_[at(t)] == Loose::no) continue;
    const Index border = loose_[at(t)] == Loose::begin ? 0 : problem_.times - 1;
    if (may_move(t, border)) moved_to_[at(t)] = border;
  }
}

void Seams::number() {
  for (std::size_t i = 0; i < problem_.count(); ++i) {
    begin_[i] = 2 * moved_to_[at(problem_.lower[i])];
    end_[i] = 2 * moved_to_[at(problem_.upper[i])];
  }
  for (const std::vector<std::size_t>& second : second_)
    for (const std::size_t code : second) {
      Index& seam = code < problem_.count() ? begin_[code] : end_[code - problem_.count()];
      seam |= 1;
    }
}

bool Seams::change(std::size_t buffer, bool at_end, PhiloxSequence& random) {
  const Index time = at_end ? problem_.upper[buffer] : problem_.lower[buffer];
  if (time == 0 || time + 1 == problem_.times) return false;
  const bool moves = loose_[at(time)] != Loose::no && random.below(3) > 0;
  if (!(moves ? move_loose(time, random) : part(moved_to_[at(time)], random))) return false;
  number();
  return true;
}

void Seams::undo() {
  if (change_.old_time >= 0)
    moved_to_[at(change_.time)] = change_.old_time;
  else
    second_[at(change_.time)] = change_.old_second;
  number();
}

bool Seams::move_loose(Index time, PhiloxSequence& random) {
  const Index step = loose_[at(time)] == Loose::end ? 1 : -1;
  Index steps = 0;
  while (time + step * (steps + 1) >= 0 && time + step * (steps + 1) < problem_.times &&
         may_move(time, time + step * (steps + 1)))
    ++steps;
  if (steps == 0) return false;
  const auto by = static_cast<Index>(random.below(static_cast<std::uint64_t>(steps) + 1));
  const Index to = by == 0 ? time : moved_to_[at(time + step * by)];
  if (to == moved_to_[at(time)] || (to - time) * step < 0 || !second_[at(moved_to_[at(time)])].empty()) return false;
  change_ = {.time = time, .old_time = moved_to_[at(time)], .old_second = {}};
  moved_to_[at(time)] = to;
  return true;
}

// A second seam is drawn until both are balanced, for a while.
bool Seams::part(Index time, PhiloxSequence& random) {
  constexpr std::size_t kMostMembers = 24;
  constexpr int kDraws = 40;
  change_ = {.time = time, .old_time = -1, .old_second = second_[at(time)]};
  if (!second_[at(time)].empty() && random.below(2) == 0) {
    second_[at(time)].clear();
    return true;
  }
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < problem_.count(); ++i) {
    if (moved_to_[at(problem_.lower[i])] == time) members.push_back(begins_code(i));
    if (moved_to_[at(problem_.upper[i])] == time) members.push_back(ends_code(i));
  }
  if (members.size() < 4 || members.size() > kMostMembers) return false;
  for (int draw = 0; draw < kDraws; ++draw) {
    Sums sums[2];
    std::vector<std::size_t> second;
    for (const std::size_t code : members) {
      const auto seam = static_cast<std::size_t>(random.below(2));
      if (seam == 1) second.push_back(code);
      if (code < problem_.count())
        sums[seam].begins += static_cast<double>(problem_.size[code]);
      else
        sums[seam].ends += static_cast<double>(problem_.size[code - problem_.count()]);
    }
    const auto good = [](const Sums& s) { return s.begins > 0 && s.ends > 0 && s.unbalance() <= kBalanced; };
    if (!good(sums[0]) || !good(sums[1])) continue;
    second_[at(time)] = std::move(second);
    return true;
  }
  return false;
}

}  // namespace bantam::planner
