// Internal: stretches that can be run again, and the dynamic programme that picks among them by estimates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bantam/engine/step_cost.h"
#include "bantam/engine/step_plan.h"

namespace bantam {

/// Nodes between two points where one value crosses the graph; what a stretch consists of.
struct RecomputeUnit {
  NodeId first = 1, last = 1;
  double seconds = 0;              ///< forward
  std::uint64_t kept_bytes = 0;    ///< what the step keeps of it for backward
  std::uint64_t output_bytes = 0;  ///< the value that crosses its end
};

/// Units [first, last], both included.
struct UnitStretch {
  std::size_t first = 0, last = 0;
  bool operator==(const UnitStretch&) const = default;
};
using StretchList = std::vector<UnitStretch>;

/// The units of a graph in order, those that work in place together with the one before. What is kept is read from a
/// plan of the step with nothing run again.
std::vector<RecomputeUnit> recompute_units(const Graph& graph, const StepPlan& plan, const StepCost& cost,
                                           std::int64_t value_bytes);

/// What another plan keeps of the same units.
void count_kept(const Graph& graph, const StepPlan& plan, std::span<RecomputeUnit> units);

/// `options` with these stretches named: by blocks where that says the same, else by layers.
RecomputeOptions name_stretches(const Graph& graph, std::span<const RecomputeUnit> units, const StretchList& stretches,
                                RecomputeOptions options);

/// For each bound on kept bytes, the stretches with the least forward time: a shortest path along the units.
class StretchTable {
 public:
  static constexpr std::size_t kLevels = 256;  ///< bounds: level l is l/256 of what all units keep
  /// No stretch holds more than `stretch_bytes` of kept bytes while it runs again.
  StretchTable(std::span<const RecomputeUnit> units, std::uint64_t stretch_bytes);
  /// Seconds of forward run again at a level; infinite where the level is too low.
  double seconds(std::size_t level) const { return best(units_.size(), level).seconds; }
  StretchList stretches(std::size_t level) const;

 private:
  struct Cell {
    double seconds;
    std::size_t from = 0;   ///< units before the last step of the path
    std::size_t level = 0;  ///< the level there
    bool run_again = false;
  };
  const Cell& best(std::size_t units, std::size_t level) const { return cells_[units * (kLevels + 1) + level]; }
  void reach(std::size_t from, std::size_t to, std::uint64_t kept_bytes, double seconds, bool run_again);

  std::span<const RecomputeUnit> units_;
  double bytes_per_level_ = 1;
  std::vector<Cell> cells_;
};

}  // namespace bantam
