// Stretches traced on the meta device and solved into offsets.
#include "bantam/engine/step_placements.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/training_step.h"
#include "bantam/memory/allocation_trace.h"

namespace bantam {
namespace {

constexpr int kMostDepartures = 3;
constexpr std::int64_t kMostIterations = 4000;

/// A trace in which everything began and ended, as buffers; nothing where something did not.
std::vector<PlannerBuffer> closed_buffers(const AllocationTrace& trace) {
  std::vector<PlannerBuffer> buffers;
  for (const TraceInterval& interval : trace.intervals()) {
    if (interval.lower == TraceInterval::kBefore || interval.upper == TraceInterval::kStillLive) return {};
    buffers.push_back({static_cast<std::int64_t>(buffers.size()), interval.lower, interval.upper, interval.bytes});
  }
  return buffers;
}

/// Notes an allocator's calls for a scope.
class Tracing {
 public:
  Tracing(BfcAllocator& memory, AllocationTrace& trace) : memory_(memory) { memory_.set_trace(&trace); }
  ~Tracing() { memory_.set_trace(nullptr); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

 private:
  BfcAllocator& memory_;
};

}  // namespace

/// The step on the stand-in, in a runtime of its own. It never fails for lack of memory.
struct StepPlacements::Rehearsal {
  Rehearsal(const Graph& graph, const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
            const LossOptions& loss, Device device)
      : model(runtime, Device::meta_of(device), graph, model_options),
        optimizer(model, optimizer_options),
        step(model, optimizer, loss) {}

  Batch batch(std::int64_t size) {
    const Context context = model.context(Pass::train);
    Batch made{.size = size};
    made.images =
        context.allocate(model.graph().input_shape().prepend(size), context.precision.compute(), Category::input);
    made.labels = context.allocate({size}, DType::int32, Category::input);
    return made;
  }
  void micro_batch(const Batch& made) { step.micro_batch(made, 0, made.size); }
  void update() {
    step.update();
    (void)step.read_metrics();
  }

  /// The calls of one stretch, and nothing else's.
  std::vector<PlannerBuffer> trace(Stretch stretch, std::int64_t size) {
    const Batch made = batch(size);
    if (stretch == Stretch::next_micro_batch || stretch == Stretch::update) micro_batch(made);
    AllocationTrace calls;
    {
      const Tracing tracing(runtime.allocator(model.device()), calls);
      if (stretch == Stretch::evaluation)
        step.evaluate(made);
      else if (stretch == Stretch::update)
        update();
      else
        micro_batch(made);
    }
    if (stretch == Stretch::first_micro_batch || stretch == Stretch::next_micro_batch) update();
    return closed_buffers(calls);
  }

  Runtime runtime{RuntimeOptions{.threads = 1}};
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

StepPlacements::StepPlacements(const Graph& graph, const ModelOptions& model, const OptimizerOptions& optimizer,
                               const LossOptions& loss, Device device)
    : rehearsal_(std::make_unique<Rehearsal>(graph, model, optimizer, loss, device)) {}

StepPlacements::~StepPlacements() = default;

void StepPlacements::prepare(const StepShapes& shapes) {
  std::vector<std::int64_t> batches = shapes.batches;
  std::ranges::sort(batches, std::greater<>());
  for (const std::int64_t batch : batches) {
    (void)plan(Stretch::first_micro_batch, batch);
    if (shapes.accumulates) (void)plan(Stretch::next_micro_batch, batch);
  }
  if (!batches.empty()) (void)plan(Stretch::update, 0);
  for (const std::int64_t batch : shapes.evaluation_batches) (void)plan(Stretch::evaluation, batch);
}

std::shared_ptr<const PlacementPlan> StepPlacements::plan(Stretch stretch, std::int64_t batch) {
  const std::int64_t size = stretch == Stretch::update ? 0 : batch;  // an update is the same after every batch
  const auto [place, fresh] = entries_.try_emplace({stretch, size});
  if (fresh) place->second.plan = solve(stretch, size);
  return place->second.plan;
}

std::shared_ptr<const PlacementPlan> StepPlacements::solve(Stretch stretch, std::int64_t batch) {
  const std::vector<PlannerBuffer> buffers = rehearsal_->trace(stretch, std::max<std::int64_t>(batch, 1));
  if (buffers.empty()) return nullptr;
  // An arena that is there anyway is small enough. Few placements are tried: a run should not wait long to begin.
  const ArenaPlan arena = solve_arena(
      buffers, {.alignment = BfcAllocator::kGranule, .capacity = arena_bytes_, .iterations = kMostIterations});
  arena_bytes_ = std::max(arena_bytes_, arena.arena_bytes);
  return std::make_shared<const PlacementPlan>(buffers, arena);
}

bool StepPlacements::note_departure(Stretch stretch, std::int64_t batch) {
  Entry& entry = entries_[{stretch, stretch == Stretch::update ? 0 : batch}];
  if (++entry.departures >= kMostDepartures) entry.plan.reset();
  return !std::exchange(departed_, true);
}

void StepPlacements::note_followed(Stretch stretch, std::int64_t batch) {
  entries_[{stretch, stretch == Stretch::update ? 0 : batch}].departures = 0;
}

}  // namespace bantam
