// Internal: the ejection search, which makes a plan fit a smaller arena by letting buffers push each other out.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/packing/placement.h"
#include "bantam/packing/search.h"

namespace bantam::planner {

/// Lowers the arena and removes the buffers that stick out; then places waiting buffers, a heavy one each time,
/// where the placed ones in their way weigh least. Those are pushed out and wait in turn. A buffer starts with its area
/// as its weight and gains with each push, so that a buffer that is hard to place stays in the end.
/// After each push a few neighbours move to other free offsets, so that what was pushed out finds room nearby. A plan
/// that fits is let down: each buffer moves to its lowest gap.
/// Source of ejecting by counted failures: Nagata and Bräysy 2009, "A powerful route minimization heuristic for the
/// vehicle routing problem with time windows".
class EjectionSearch {
 public:
  /// Neighbours looked at that count as one iteration of the budget: about the work of placing some hundreds of buffers
  /// on a skyline, and of 100 to 200 insertions.
  static constexpr std::int64_t kLooks = 11'000;

  /// Whether the pairs of buffers alive together are few enough to be listed.
  static bool suits(const Problem& problem) { return has_few_pairs(problem); }

  /// Weights begin as areas to the power of `area_power`: 2 holds large buffers where they are, which suits sizes that
  /// are much alike; 1 lets the few largest move, too. `start` need not be low: buffers that stick out wait.
  EjectionSearch(const Problem& problem, const Placement& start, double area_power);

  /// Continues as `other` of the same problem would.
  void follow(const EjectionSearch& other);

  /// Searches a plan of at most `arena`, and lets it down. False where the budget ended before; then what waits is
  /// still unplaced.
  bool fit_into(std::uint64_t arena, std::uint64_t seed, Budget& budget);

  /// Where all lie, after fit_into() said true.
  Placement placement() const;

 private:
  using Bytes = std::int64_t;  // spots may be looked at below 0

  struct Edge {
    Bytes offset;
    std::int64_t weight;
  };
  struct Spot {
    Bytes offset;
    std::int64_t weight;  ///< the weights' sum of the placed buffers in the way
  };

  void list_neighbours();
  void weigh(double area_power);
  void put(std::size_t buffer, Bytes offset);
  void remove(std::size_t buffer);
  std::size_t take_waiting();
  template <typename Use>
  void each_gap(std::size_t buffer, Use use);
  void insert_one();
  void shake_beside(std::size_t inserted);
  void let_down();
  void list_edges(std::vector<Index>& order, const std::vector<Bytes>& keys, Bytes shift,
                  std::vector<Edge>& edges) const;
  Spot lightest_spot(std::size_t buffer);

  const Problem& problem_;
  PhiloxSequence random_;
  Bytes arena_ = 0;
  std::int64_t looks_ = 0;
  std::vector<Bytes> bottom_, top_;  // by buffer; of a waiting one where it was
  std::vector<char> placed_;
  std::vector<std::int64_t> weight_;
  std::vector<std::size_t> waiting_;
  // By buffer: those alive with it. Sorted by bottom and by top when they were last looked at, hence nearly sorted now.
  std::vector<std::vector<Index>> by_bottom_, by_top_;
  std::vector<Edge> begins_, ends_;
  std::vector<Bytes> ties_;
};

}  // namespace bantam::planner
