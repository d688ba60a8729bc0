// Internal: the search for how a full arena was divided among its buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/planner_embedding.h"
#include "bantam/memory/planner_placement.h"
#include "bantam/memory/planner_seams.h"
#include "bantam/memory/planner_search.h"

namespace bantam::planner {

/// Where buffers fill an arena, seams and buffers are the vertices and arcs of a planar graph from the first time to
/// the last, and any drawing of it without crossings tells which buffer lies above which: in an arena that was full,
/// such an order is a full plan, whatever the sizes. Seams are guessed and changed at random, as long as fewer buffers
/// stay without a place. What has none in the end is laid on top.
/// Source of rectangles as a planar graph: Brooks, Smith, Stone and Tutte 1940, "The dissection of rectangles into
/// squares".
class DissectionSearch {
 public:
  /// Embeddings count as so many iterations of the budget.
  static constexpr std::int64_t kIterations = 4;

  static bool suits(const Problem& problem) { return problem.count() <= PlanarEmbedding::kMostArcs; }

  /// `most_moved`: the share of a lifetime by which it may have been cut short.
  DissectionSearch(const Problem& problem, double most_moved, std::uint64_t seed);

  /// Searches until every buffer has its place in an arena of the goal, or the budget is used up.
  void run(Budget& budget);

  const Placement& placement() const { return placement_; }
  /// The share of the buffers' area without a place, and the share by which the others are higher than they must be.
  double cost() const { return cost_; }

 private:
  struct Dissection {
    std::vector<Index> order;  // buffers with a place, those below before those above
    Placement placement;
    std::vector<char> placed;
    double cost = 1;
  };

  std::vector<Index> connected() const;
  std::vector<Index> order_of(std::span<const Index> buffers, PlanarEmbedding& embedding) const;
  void stack(Dissection& dissection) const;
  Dissection dissect();
  std::size_t some_buffer();
  void lay_rest_on_top();

  const Problem& problem_;
  PhiloxSequence random_;
  Seams seams_;
  Dissection best_;
  Placement placement_;
  double area_ = 0, cost_ = 1;
};

}  // namespace bantam::planner
