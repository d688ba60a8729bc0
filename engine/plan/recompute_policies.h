// Internal: checkpoint segments that could be recomputed, and the dynamic programme that chooses among them by
// estimates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bantam/engine/plan/step_cost.h"
#include "bantam/engine/plan/step_plan.h"

namespace bantam {

/// A node with the nodes after it that work in its memory, or the nodes that run as one op. Segments consist of units.
struct RecomputeUnit {
  NodeId first = 1, last = 1;
  NodeId read_until = 1;             ///< the last node that reads its output
  double seconds = 0;                ///< to recompute it
  double unused_output_seconds = 0;  ///< of these, saved where a segment ends here: its output is unused
  double derive_seconds = 0;         ///< outside segments: to rebuild its derived tensors
  std::uint64_t kept_bytes = 0;      ///< what the step keeps of it for backward
  std::uint64_t output_bytes = 0;    ///< its last node's output
  std::uint64_t end_bytes = 0;       ///< what is kept of it where a segment ends with it and no other follows
};

/// Units [first, last], both included.
struct CheckpointSegment {
  std::size_t first = 0, last = 0;
  bool operator==(const CheckpointSegment&) const = default;
};
using SegmentList = std::vector<CheckpointSegment>;

/// The list with one more segment, in order; nothing where it would overlap another.
std::optional<SegmentList> with_segment(SegmentList list, CheckpointSegment segment);

/// The units of a graph in order. The bytes kept come from a plan of the step without recompute.
std::vector<RecomputeUnit> recompute_units(const Graph& graph, const StepPlanOptions& step, const StepPlan& plan,
                                           const StepCost& cost);

/// The bytes that another plan, which derives tensors, keeps of the same units, and the seconds by node for rebuilding
/// those (rebuild_seconds).
void count_kept(const Graph& graph, const StepPlan& plan, std::span<const double> seconds,
                std::span<RecomputeUnit> units);

/// `options` with these segments named: by blocks where that says the same, else by layers.
RecomputeOptions name_segments(const Graph& graph, std::span<const RecomputeUnit> units, const SegmentList& segments,
                               RecomputeOptions options);

/// Estimates of what segments cost, from sums over their units: close to plans and to predicted steps, and fast.
class SegmentEstimates {
 public:
  /// `once`: units outside segments; `recomputed`: units as a segment keeps them while it is recomputed.
  /// `segment_seconds`: added for each segment.
  SegmentEstimates(const Graph& graph, const StepCost& cost, std::span<const RecomputeUnit> once,
                   std::span<const RecomputeUnit> recomputed, double segment_seconds = 0);
  std::size_t units() const { return once_.size(); }
  const RecomputeUnit& once(std::size_t unit) const { return once_[unit]; }
  /// Whether only the segment's last value is read outside it.
  bool valid(CheckpointSegment segment) const;
  /// Seconds of work to recompute it.
  double seconds(CheckpointSegment segment) const;
  /// Bytes alive while it is recomputed, without its end, with two gradients as large as its largest output.
  std::uint64_t recompute_bytes(CheckpointSegment segment) const;
  struct Total {
    double seconds = 0;
    std::uint64_t kept_bytes = 0;
  };
  Total total(const SegmentList& segments) const;
  /// The lists with segment i as two, between which up to `most` units run once.
  std::vector<SegmentList> cut_in_two(const SegmentList& list, std::size_t i, std::size_t most) const;
  /// Bytes that the next segment keeps as its input where it begins right after this one, because nothing else keeps
  /// them: mostly 0.
  std::uint64_t passed_on_bytes(CheckpointSegment segment) const {
    return once_[segment.last].end_bytes == 0 ? once_[segment.last].output_bytes : 0;
  }

 private:
  struct Deferral {  // a norm that its reader applies, unless only one of the two is recomputed
    NodeId norm, reader;
    double seconds;
  };
  std::span<const RecomputeUnit> once_, recomputed_;
  double segment_seconds_;
  std::vector<Deferral> deferrals_;
};

/// For each bound on kept bytes, the segments with the least work: a shortest path along the units.
class SegmentTable {
 public:
  static constexpr std::size_t kLevels = 256;  ///< bounds: level l is l/256 of what all units keep
  /// While a segment is recomputed, it and all that is kept before it fit in `room` bytes.
  SegmentTable(const SegmentEstimates& estimates, std::uint64_t room);
  /// Seconds of work at a level; infinite where the level is too low.
  double seconds(std::size_t level) const { return cell(end(level), level).seconds; }
  SegmentList segments(std::size_t level) const;
  /// The bound that is nearest to so many bytes.
  std::size_t level_of(double bytes) const {
    return static_cast<std::size_t>(std::clamp(bytes / bytes_per_level_, 0.0, static_cast<double>(kLevels)));
  }

 private:
  /// `units` units are done; `open`: they end with a segment whose output only a following segment reads.
  struct Place {
    std::size_t units = 0;
    bool open = false;
  };
  struct Cell {
    double seconds;
    Place from;             ///< where the last step of the path began
    std::size_t level = 0;  ///< the level there
    bool recompute = false;
  };
  const Cell& cell(Place at, std::size_t level) const { return cells_[index(at, level)]; }
  static std::size_t index(Place at, std::size_t level) {
    return (2 * at.units + (at.open ? 1 : 0)) * (kLevels + 1) + level;
  }
  Place end(std::size_t level) const;
  void run_once(Place from);
  void recompute(Place from, std::size_t last, std::uint64_t room);
  /// Extends the paths of all levels up to `highest` by a step that keeps `kept_bytes`.
  void reach(Place to, std::uint64_t kept_bytes, std::size_t highest, const Cell& step);

  const SegmentEstimates& estimates_;
  double bytes_per_level_ = 1;
  std::vector<Cell> cells_;
};

}  // namespace bantam
