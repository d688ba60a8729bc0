// StepPlacements: the places of a step's allocations, solved on a stand-in for the device before the step runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/memory/allocator/accounting.h"
#include "bantam/memory/allocator/placement.h"

namespace bantam {

struct LossOptions;
struct ReplicaOptions;
struct StepShapes;

/// A trace in which everything began and ended, as buffers; nothing where something did not.
std::vector<PlannerBuffer> closed_buffers(const AllocationTrace& trace);
/// Places of such buffers in one arena, of which one of `capacity` bytes is small enough; null for no buffers. Few
/// placements are tried: a run should not wait long to begin.
std::shared_ptr<const PlacementPlan> solve_placements(const std::vector<PlannerBuffer>& buffers,
                                                      std::uint64_t capacity);

/// The parts of training between which no memory of a step is alive, except partial gradients, which a micro-batch
/// keeps for the update; the update allocates nothing.
enum class StepPart : std::uint8_t {
  first_micro_batch,  ///< the first one of an update: gradients are written
  next_micro_batch,   ///< gradients are added to
  update,
  evaluation,
  evaluation_outputs,  ///< the outputs of an evaluated batch, written to memory that is no part of it
  evaluation_measures  ///< loss and metrics of outputs that are there
};

/// Notes an allocator's calls in `trace` for a scope, also where an exception ends it: `trace` must outlive the scope,
/// and nothing is noted in it afterwards.
class TraceScope {
 public:
  TraceScope(BfcAllocator& memory, AllocationTrace& trace) : memory_(memory) { memory_.set_trace(&trace); }
  ~TraceScope() { memory_.set_trace(nullptr); }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  BfcAllocator& memory_;
};

/// Notes the calls of one part of a step on the device itself, for StepPlacements::learn. Memory of the part may be
/// freed after its end (partial gradients, which live until the update): it records until `stop`. Other threads may
/// allocate meanwhile.
class PartTrace {
 public:
  /// The allocator's trace from here on: it must have none.
  PartTrace(BfcAllocator& memory, Stream stream, StepPart part, std::int64_t batch);
  ~PartTrace();
  PartTrace(const PartTrace&) = delete;
  PartTrace& operator=(const PartTrace&) = delete;

  /// Marks the part's end: allocations from here on do not belong to it.
  void end_part() { memory_.note_phase(kEnd); }
  void stop();
  StepPart part() const { return part_; }
  std::int64_t batch() const { return batch_; }
  /// After stop(), the part's allocations on the stream, in their order; nothing where one of them is still live.
  std::optional<std::vector<PlannerBuffer>> buffers() const;

 private:
  BfcAllocator& memory_;
  Stream stream_;
  StepPart part_;
  std::int64_t batch_;
  AllocationTrace calls_;
  static constexpr const char* kEnd = "after the part";
};

/// Plans by part and batch size. A plan is made where it is first asked for, by running the part on the meta
/// stand-in of the device (milliseconds). Where a part of the step does not support meta devices (without_meta),
/// nothing runs there: a part's plan then comes from the allocations of its first run on the device itself (`learn`).
/// Not thread-safe.
class StepPlacements {
 public:
  /// Makes the step that plans come from, on the stand-in of its device; the memory of the replicas' tree is no part
  /// of a plan. Throws what making the model throws.
  StepPlacements(const Graph& graph, const ModelOptions& model, const OptimizerOptions& optimizer,
                 const LossOptions& loss, Device device, const ReplicaOptions& replicas);
  ~StepPlacements();
  StepPlacements(const StepPlacements&) = delete;
  StepPlacements& operator=(const StepPlacements&) = delete;

  /// Makes all plans of a run, the largest first.
  void prepare(const StepShapes& shapes);
  /// Null where there is nothing to place, where memory of the part outlives it, after it was dropped, or as long as it
  /// is to be learned.
  std::shared_ptr<const PlacementPlan> plan(StepPart part, std::int64_t batch);
  /// Whether plans are made from runs of the parts on the device itself.
  bool learns() const { return rehearsal_ == nullptr; }
  /// Whether the part's next run is to be noted for `learn`.
  bool to_learn(StepPart part, std::int64_t batch) const;
  /// Makes the plan of a part that has run. False where that is impossible: in each of several runs some of its memory
  /// stayed live.
  bool learn(const PartTrace& trace);
  /// Notes that the part departed from its plan, which is dropped after several times in a row. True the first time.
  bool note_departure(StepPart part, std::int64_t batch);
  /// Notes that the part followed its plan.
  void note_followed(StepPart part, std::int64_t batch);
  /// Drops the plans of micro-batches of more than `samples`, which no longer occur.
  void drop_above(std::int64_t samples);
  /// The bytes of an arena that fits each of the plans in use.
  std::uint64_t arena_bytes() const;

 private:
  struct Rehearsal;
  struct Entry {
    std::shared_ptr<const PlacementPlan> plan;
    int departures = 0;  // in a row
    int to_learn = 0;    // runs that may still be noted
  };
  static constexpr int kMostRunsToLearn = 3;
  using Key = std::pair<StepPart, std::int64_t>;
  /// An update is the same after every batch.
  static Key key(StepPart part, std::int64_t batch) { return {part, part == StepPart::update ? 0 : batch}; }
  std::shared_ptr<const PlacementPlan> solve(const std::vector<PlannerBuffer>& buffers) const;

  std::unique_ptr<Rehearsal> rehearsal_;  // null: plans are learned
  bool views_;                            // evaluations have them
  std::map<Key, Entry> entries_;
  bool departed_ = false;
};

}  // namespace bantam
