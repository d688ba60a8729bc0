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

/// The parts of training between which no memory of a step is alive, but for gradients that wait in parts from a
/// micro-batch to the update, which takes no memory.
enum class StepPart : std::uint8_t {
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

/// Plans by part and batch size. A plan is made where it is first asked for, by running the part on the meta
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
  /// Null where there is nothing to place, where memory of the part outlives it, or after it was dropped.
  std::shared_ptr<const PlacementPlan> plan(StepPart part, std::int64_t batch);
  /// The part has not gone as planned: its plan is not used again after some times in a row. True the first time.
  bool note_departure(StepPart part, std::int64_t batch);
  /// It has.
  void note_followed(StepPart part, std::int64_t batch);
  /// Forgets the plans of micro-batches of more than `samples`, which will not be met again.
  void drop_above(std::int64_t samples);
  /// What the plans in use need.
  std::uint64_t arena_bytes() const;

 private:
  struct Rehearsal;
  struct Entry {
    std::shared_ptr<const PlacementPlan> plan;
    int departures = 0;  // in a row
  };
  std::shared_ptr<const PlacementPlan> solve(StepPart part, std::int64_t batch);

  std::unique_ptr<Rehearsal> rehearsal_;
  std::map<std::pair<StepPart, std::int64_t>, Entry> entries_;
  bool departed_ = false;
};

}  // namespace bantam
