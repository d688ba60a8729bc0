// Each box knows the partner with which it wastes least; a join changes few of these, so that a round costs O(n²).
#include "bantam/packing/boxes.h"

#include <algorithm>
#include <limits>
#include <span>

namespace bantam::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::uint64_t key_of(Index a, Index b) {
  return (static_cast<std::uint64_t>(std::min(a, b)) << 32) | static_cast<std::uint64_t>(std::max(a, b));
}

}  // namespace

Problem BoxJoiner::join(const JoinRules& rules, const Stop& stop) {
  rules_ = rules;
  start();
  for (bool fresh = true; left_.size() > 1 && !(stop && stop());) {
    const Index a = best_paired();
    const double least = a == kNoBox ? kNever : partner_[at(a)].waste;
    const auto [ends, begins] = least > 0 ? only_pair() : std::pair{kNoBox, kNoBox};
    if (ends != kNoBox) {
      fresh = false;
      merge(ends, begins);
    } else if (least <= rules_.most_waste) {
      fresh = false;
      if (!merge(a, partner_[at(a)].box)) find_partner(a);
    } else if (fresh) {
      break;
    } else {
      find_partners();  // more ends may be loose by now
      fresh = true;
    }
  }
  return left_boxes();
}

Problem BoxJoiner::left_boxes() const {
  Problem result;
  result.times = problem_.times;
  result.alignment = problem_.alignment;
  result.max_live = *std::ranges::max_element(live_);
  for (const Index i : left_) {
    result.lower.push_back(boxes_[at(i)].lower);
    result.upper.push_back(boxes_[at(i)].upper);
    result.size.push_back(boxes_[at(i)].size);
  }
  return result;
}

void BoxJoiner::start() {
  boxes_.clear();
  left_.clear();
  refused_.clear();
  const std::size_t times = at(problem_.times) + 1;
  ends_.assign(times, 0);
  begins_.assign(times, 0);
  live_.assign(times, 0);
  for (std::size_t i = 0; i < problem_.count(); ++i) {
    const Box& box = boxes_.emplace_back(Box{problem_.lower[i], problem_.upper[i], problem_.size[i]});
    left_.push_back(static_cast<Index>(i));
    ++begins_[at(box.lower)];
    ++ends_[at(box.upper)];
    for (Index t = box.lower; t < box.upper; ++t) live_[at(t)] += box.size;
  }
  ++ends_[0];  // nothing can be missing before the first time, or after the last
  ++begins_[at(problem_.times - 1)];
  partner_.assign(boxes_.size(), {});
  find_partners();
}

void BoxJoiner::find_partners() {
  for (const Index a : left_) find_partner(a);
}

BoxJoiner::Box BoxJoiner::joined(Index a, Index b) const {
  const Box &x = boxes_[at(a)], &y = boxes_[at(b)];
  const bool stacked = x.lower < y.upper && y.lower < x.upper;
  return {std::min(x.lower, y.lower),
          std::max(x.upper, y.upper),
          stacked ? x.size + y.size : std::max(x.size, y.size),
          a,
          b,
          stacked};
}

// The empty share of the joined box that its parts do not have; of a join that is not allowed, infinite.
double BoxJoiner::waste(Index a, Index b) const {
  const double area = joined(a, b).area();
  const double share = (area - boxes_[at(a)].area() - boxes_[at(b)].area()) / area;
  if (share <= 0) return share;
  if (share > rules_.most_waste || !only_loose_ends(a, b)) return kNever;
  const bool refused = !refused_.empty() && std::ranges::binary_search(refused_, key_of(a, b));
  return refused ? kNever : share;
}

bool BoxJoiner::only_loose_ends(Index a, Index b) const {
  const Box &x = boxes_[at(a)], &y = boxes_[at(b)];
  const auto loose_end = [&](const Box& box) { return begins_[at(box.upper)] == 0; };
  const auto loose_begin = [&](const Box& box) { return ends_[at(box.lower)] == 0; };
  if (x.upper == y.lower || y.upper == x.lower) return false;
  if (x.upper < y.lower) return loose_end(x) && loose_begin(y);
  if (y.upper < x.lower) return loose_end(y) && loose_begin(x);
  return (x.lower == y.lower || loose_begin(x.lower > y.lower ? x : y)) &&
         (x.upper == y.upper || loose_end(x.upper < y.upper ? x : y));
}

void BoxJoiner::consider(Index a, Index b) {
  if (const double found = waste(a, b); found < partner_[at(a)].waste) partner_[at(a)] = {b, found};
}

void BoxJoiner::find_partner(Index a) {
  partner_[at(a)] = {kNoBox, kNever};
  for (const Index b : left_)
    if (b > a) consider(a, b);
}

Index BoxJoiner::best_paired() const {
  Index best = kNoBox;
  for (const Index a : left_)
    if (partner_[at(a)].box != kNoBox && (best == kNoBox || partner_[at(a)].waste < partner_[at(best)].waste)) best = a;
  return best;
}

// A box that ends at a time and one that begins at it, each the only one there of about the other's size.
std::pair<Index, Index> BoxJoiner::only_pair() {
  const auto lower = [&](Index i) { return boxes_[at(i)].lower; };
  const auto upper = [&](Index i) { return boxes_[at(i)].upper; };
  by_lower_ = by_upper_ = left_;
  std::ranges::sort(by_lower_, {}, lower);
  std::ranges::sort(by_upper_, {}, upper);
  // Not equal_range: clang 14 does not accept the subrange that it returns.
  const auto those_at = [](const std::vector<Index>& sorted, auto time, const auto& time_of) {
    return std::span<const Index>(std::ranges::lower_bound(sorted, time, {}, time_of),
                                  std::ranges::upper_bound(sorted, time, {}, time_of));
  };
  const auto only_like = [&](Index box, std::span<const Index> others) {
    Index found = kNoBox;
    for (const Index other : others) {
      const auto [less, more] = std::minmax(boxes_[at(box)].size, boxes_[at(other)].size);
      if (static_cast<double>(more - less) > rules_.alike * static_cast<double>(more)) continue;
      if (found != kNoBox) return kNoBox;
      found = other;
    }
    return found;
  };
  for (const Index a : by_upper_) {
    const Index b = only_like(a, those_at(by_lower_, upper(a), lower));
    if (b == kNoBox || only_like(b, those_at(by_upper_, upper(a), upper)) != a) continue;
    if (!std::ranges::binary_search(refused_, key_of(a, b))) return {a, b};
  }
  return {kNoBox, kNoBox};
}

// False, and remembered, where too many bytes would be alive.
bool BoxJoiner::merge(Index a, Index b) {
  const Box box = joined(a, b);
  const auto add = [&](const Box& part, bool take) {
    const std::uint64_t bytes = take ? part.size : -part.size;  // unsigned: wraps, and wraps back
    const Index change = take ? 1 : -1;
    for (Index t = part.lower; t < part.upper; ++t) live_[at(t)] += bytes;
    begins_[at(part.lower)] += change;
    ends_[at(part.upper)] += change;
  };
  const auto replace = [&](bool forth) {
    add(boxes_[at(a)], !forth);
    add(boxes_[at(b)], !forth);
    add(box, forth);
  };
  replace(true);
  if (*std::max_element(live_.begin() + box.lower, live_.begin() + box.upper) > rules_.most_live) {
    replace(false);
    refused_.insert(std::ranges::upper_bound(refused_, key_of(a, b)), key_of(a, b));
    return false;
  }
  const auto index = static_cast<Index>(boxes_.size());
  boxes_.push_back(box);
  partner_.push_back({kNoBox, kNever});
  std::erase_if(left_, [&](Index i) { return i == a || i == b; });
  for (const Index i : left_) {
    if (partner_[at(i)].box == a || partner_[at(i)].box == b) find_partner(i);
    consider(i, index);
  }
  left_.push_back(index);
  return true;
}

void BoxJoiner::unpack(const Placement& boxes, Placement& out) const {
  std::vector<std::uint64_t> offset(boxes_.size());
  for (std::size_t i = 0; i < left_.size(); ++i) offset[at(left_[i])] = boxes.offset[i];
  for (std::size_t i = boxes_.size(); i-- > problem_.count();) {  // a box comes after its parts
    const Box& box = boxes_[i];
    offset[at(box.first)] = offset[i];
    offset[at(box.second)] = offset[i] + (box.stacked ? boxes_[at(box.first)].size : 0);
  }
  out.offset.assign(offset.begin(), offset.begin() + static_cast<std::ptrdiff_t>(problem_.count()));
  out.height = boxes.height;
}

}  // namespace bantam::planner
