// StepPlacements: the places of a step's allocations, solved on a stand-in for the device before the step runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bantam/engine/model.h"
#include "bantam/engine/optimizer.h"
#include "bantam/memory/placement.h"

namespace bantam {

struct LossOptions;

/// Stretches of training between which no memory of a step is alive.
enum class Stretch : std::uint8_t {
  first_micro_batch,  ///< of an update: gradients are written
  next_micro_batch,   ///< gradients are added to
  update,
  evaluation
};

/// What a run will meet.
struct StepShapes {
  std::vector<std::int64_t> batches;             ///< sizes of micro-batches: the full one, a short last one
  std::vector<std::int64_t> evaluation_batches;  ///< likewise
  bool accumulates = false;                      ///< updates of several micro-batches
};

/// Plans by stretch and batch size. A plan is made where it is first asked for, by running the stretch on the meta
/// stand-in of the device (milliseconds). Layers of a program's own must leave memory alone where the context's device
/// is meta; BANTAM_KERNEL does. Not thread-safe.
class StepPlacements {
 public:
  /// Of the model's graph, on the stand-in of its device. Throws what making the model throws.
  StepPlacements(const Graph& graph, const ModelOptions& model, const OptimizerOptions& optimizer,
                 const LossOptions& loss, Device device);
  ~StepPlacements();
  StepPlacements(const StepPlacements&) = delete;
  StepPlacements& operator=(const StepPlacements&) = delete;

  /// Makes all plans of a run, the largest first.
  void prepare(const StepShapes& shapes);
  /// Null where there is nothing to place, where memory of the stretch outlives it, or after `retire`.
  std::shared_ptr<const PlacementPlan> plan(Stretch stretch, std::int64_t batch);
  /// The stretch has not gone as planned: its plan is not used again after some times in a row. True the first time.
  bool note_departure(Stretch stretch, std::int64_t batch);
  /// It has.
  void note_followed(Stretch stretch, std::int64_t batch);
  /// What all plans so far need.
  std::uint64_t arena_bytes() const { return arena_bytes_; }

 private:
  struct Rehearsal;
  struct Entry {
    std::shared_ptr<const PlacementPlan> plan;
    int departures = 0;  // in a row
  };
  std::shared_ptr<const PlacementPlan> solve(Stretch stretch, std::int64_t batch);

  std::unique_ptr<Rehearsal> rehearsal_;
  std::map<std::pair<Stretch, std::int64_t>, Entry> entries_;
  std::uint64_t arena_bytes_ = 0;
  bool departed_ = false;
};

}  // namespace bantam
