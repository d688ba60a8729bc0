// Internal: buffers joined to boxes, so that a few large rectangles are packed instead of many small ones.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bantam/packing/placement.h"

namespace bantam::planner {

/// How boxes are joined.
struct JoinRules {
  double most_waste = 0.05;     ///< nothing is joined where the empty share of the result would be above this
  double alike = 0.1;           ///< sizes that differ by less than this share count as about the same
  std::uint64_t most_live = 0;  ///< no join makes the boxes alive at one time need more
};

/// Joins pairs of boxes: two on top of each other, or two side by side in time. First those with little choice: of
/// equal lifetimes, and one that begins when another of about its size ends, if no others do. Then those that waste
/// least, but only by filling loose ends: where a box ends (begins) and none begins (ends), so that nothing was meant
/// to follow without a gap. The result is a problem of fewer buffers; a placement of it is one of all.
class BoxJoiner {
 public:
  /// Whether the buffers are few enough: a round of joins costs O(n²).
  static bool suits(const Problem& problem) { return problem.count() <= 2048; }

  explicit BoxJoiner(const Problem& problem) : problem_(problem) {}

  /// Joins all it can, or until `stop` says so; returns the remaining boxes.
  Problem join(const JoinRules& rules, const Stop& stop = {});
  /// From a placement of the boxes of the last join() to one of the buffers.
  void unpack(const Placement& boxes, Placement& out) const;

 private:
  static constexpr Index kNoBox = -1;

  struct Box {
    Index lower, upper;
    std::uint64_t size;
    Index first = kNoBox, second = kNoBox;  // what it was joined from; a buffer has none
    bool stacked = false;                   // the second lies on the first, else beside it
    double area() const { return static_cast<double>(size) * (upper - lower); }
  };
  struct Partner {
    Index box = kNoBox;
    double waste = 0;
  };

  void start();
  Problem left_boxes() const;
  Box joined(Index a, Index b) const;
  double waste(Index a, Index b) const;
  bool only_loose_ends(Index a, Index b) const;
  void consider(Index a, Index b);
  void find_partner(Index a);
  void find_partners();
  std::pair<Index, Index> only_pair();
  Index best_paired() const;
  bool merge(Index a, Index b);

  const Problem& problem_;
  JoinRules rules_;
  std::vector<Box> boxes_;              // the buffers first, by their index
  std::vector<Index> left_;             // boxes that are not part of another
  std::vector<Partner> partner_;        // by box: the best later one in left_
  std::vector<Index> ends_, begins_;    // by time: how many of left_
  std::vector<std::uint64_t> live_;     // by time: bytes of left_
  std::vector<std::uint64_t> refused_;  // pairs, sorted, that would need more than most_live
  std::vector<Index> by_lower_, by_upper_;
};

}  // namespace bantam::planner
