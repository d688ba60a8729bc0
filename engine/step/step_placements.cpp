// Parts of a step traced on the meta device, or on the device itself, and solved into offsets.
#include "bantam/engine/step/step_placements.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/model/synchronise.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/memory/allocator/accounting.h"

namespace bantam {
namespace {

constexpr int kMostDepartures = 3;
constexpr std::int64_t kMostIterations = 4000;

}  // namespace

std::vector<PlannerBuffer> closed_buffers(const AllocationTrace& trace) {
  std::vector<PlannerBuffer> buffers;
  for (const TraceInterval& interval : trace.intervals()) {
    if (interval.lower == TraceInterval::kBefore || interval.upper == TraceInterval::kStillLive) return {};
    buffers.push_back({static_cast<std::int64_t>(buffers.size()), interval.lower, interval.upper, interval.bytes});
  }
  return buffers;
}

std::shared_ptr<const PlacementPlan> solve_placements(const std::vector<PlannerBuffer>& buffers,
                                                      std::uint64_t capacity) {
  if (buffers.empty()) return nullptr;
  const ArenaPlan arena = solve_arena(
      buffers, {.alignment = BfcAllocator::kAllocationUnit, .capacity = capacity, .iterations = kMostIterations});
  return std::make_shared<const PlacementPlan>(buffers, arena);
}

namespace {

/// Two stand for any number; synchronised norms need a rank each.
ReplicaOptions replicas_for(const Graph& graph, bool several) {
  ReplicaOptions replicas{.replicas = several ? 2 : 1};
  if (several && has_synchronised_norms(graph)) replicas.dealt = {1, 1};
  return replicas;
}

}  // namespace

/// The step on the stand-in, in a runtime of its own. It never fails for lack of memory.
struct StepPlacements::Rehearsal {
  Rehearsal(const Graph& graph, const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
            const LossOptions& loss, Device device, bool replicas)
      : session(runtime, Device::meta_of(device), graph,
                {.model = model_options,
                 .optimizer = optimizer_options,
                 .loss = loss,
                 .replicas = replicas_for(graph, replicas)}) {}

  void micro_batch(const Batch& made) { session.step().micro_batch(made, 0, made.size); }
  /// With replicas no memory of a micro-batch lives until the update, and the first replica has none.
  void update() {
    if (session.step().replicas().replicas > 1) return session.step().discard();
    session.step().update();
    (void)session.step().read_metrics();
  }

  /// The calls of one part, and, of a micro-batch, of the update after it.
  std::vector<PlannerBuffer> trace(StepPart part, std::int64_t size) {
    const Batch made = allocate_batch(session.model(), size, session.step().loss());
    const bool is_micro_batch = part == StepPart::first_micro_batch || part == StepPart::next_micro_batch;
    Tensor outputs;  // of an evaluated batch
    if (part == StepPart::evaluation_outputs || part == StepPart::evaluation_measures)
      outputs = session.model()
                    .context(Pass::evaluate)
                    .allocate(session.model().graph().output_shape().prepend(size), DType::float32);
    if (part == StepPart::next_micro_batch || part == StepPart::update) micro_batch(made);
    if (part == StepPart::next_micro_batch) session.model().parameters().partial_gradients().add_up();
    AllocationTrace calls;
    {
      const TraceScope tracing(runtime.allocator(session.model().device()), calls);
      if (part == StepPart::evaluation)
        session.step().evaluate(made);
      else if (part == StepPart::evaluation_outputs)
        session.step().evaluate_outputs(made.at(kImages), {.sums = outputs.as<float>()});
      else if (part == StepPart::evaluation_measures)
        session.step().evaluate_measures(made, outputs);
      else if (part == StepPart::update)
        update();
      else
        micro_batch(made);
      if (is_micro_batch) update();  // allocates nothing, and frees the partial gradients
    }
    return closed_buffers(calls);
  }

  Runtime runtime{RuntimeOptions{.threads = 1}};
  TrainingSession session;
};

PartTrace::PartTrace(BfcAllocator& memory, Stream stream, StepPart part, std::int64_t batch)
    : memory_(memory), stream_(stream), part_(part), batch_(batch) {
  memory_.set_trace(&calls_);
}

PartTrace::~PartTrace() { stop(); }

void PartTrace::stop() {
  if (memory_.trace() == &calls_) memory_.set_trace(nullptr);
}

std::optional<std::vector<PlannerBuffer>> PartTrace::buffers() const {
  const auto end = std::ranges::find(calls_.phases(), std::string_view(kEnd), &TracePhase::name);
  if (end == calls_.phases().end()) return std::nullopt;
  std::vector<PlannerBuffer> buffers;
  for (const TraceInterval& interval : calls_.intervals()) {
    if (interval.lower == TraceInterval::kBefore || interval.lower >= end->tick) continue;
    if (calls_.events()[static_cast<std::size_t>(interval.lower)].stream != stream_.id) continue;
    if (interval.upper == TraceInterval::kStillLive) return std::nullopt;
    buffers.push_back({static_cast<std::int64_t>(buffers.size()), interval.lower, interval.upper, interval.bytes});
  }
  return buffers;
}

StepPlacements::StepPlacements(const Graph& graph, const ModelOptions& model, const OptimizerOptions& optimizer,
                               const LossOptions& loss, Device device, const ReplicaOptions& replicas)
    : views_(loss.views.has_value()) {
  if (without_meta(graph, loss, optimizer).empty())
    rehearsal_ = std::make_unique<Rehearsal>(graph, model, optimizer, loss, device, replicas.replicas > 1);
}

StepPlacements::~StepPlacements() = default;

void StepPlacements::prepare(const StepShapes& shapes) {
  std::vector<std::int64_t> batches = shapes.batches;
  std::ranges::sort(batches, std::greater<>());
  for (const std::int64_t batch : batches) {
    (void)plan(StepPart::first_micro_batch, batch);
    if (shapes.accumulates) (void)plan(StepPart::next_micro_batch, batch);
  }
  if (!batches.empty()) (void)plan(StepPart::update, 0);
  for (const std::int64_t batch : shapes.evaluation_batches)
    (void)plan(views_ ? StepPart::evaluation_measures : StepPart::evaluation, batch);
  if (!views_) return;
  for (const std::vector<std::int64_t>* sizes : {&shapes.evaluation_batches, &shapes.viewed_batches})
    for (const std::int64_t batch : *sizes) (void)plan(StepPart::evaluation_outputs, batch);
}

std::shared_ptr<const PlacementPlan> StepPlacements::plan(StepPart part, std::int64_t batch) {
  const auto [place, fresh] = entries_.try_emplace(key(part, batch), Entry{.to_learn = kMostRunsToLearn});
  if (fresh && rehearsal_) place->second.plan = solve(rehearsal_->trace(part, std::max<std::int64_t>(batch, 1)));
  return place->second.plan;
}

bool StepPlacements::to_learn(StepPart part, std::int64_t batch) const {
  if (!learns() || part == StepPart::update) return false;  // an update allocates nothing
  const auto found = entries_.find(key(part, batch));
  return found == entries_.end() || found->second.to_learn > 0;
}

bool StepPlacements::learn(const PartTrace& trace) {
  Entry& entry =
      entries_.try_emplace(key(trace.part(), trace.batch()), Entry{.to_learn = kMostRunsToLearn}).first->second;
  const std::optional<std::vector<PlannerBuffer>> buffers = trace.buffers();
  if (!buffers) return --entry.to_learn > 0;
  entry.to_learn = 0;
  entry.plan = solve(*buffers);
  return true;
}

std::shared_ptr<const PlacementPlan> StepPlacements::solve(const std::vector<PlannerBuffer>& buffers) const {
  return solve_placements(buffers, arena_bytes());  // an arena that is there anyway is small enough
}

void StepPlacements::drop_above(std::int64_t samples) {
  std::erase_if(entries_, [samples](const auto& entry) {
    const auto [part, batch] = entry.first;
    return (part == StepPart::first_micro_batch || part == StepPart::next_micro_batch) && batch > samples;
  });
}

std::uint64_t StepPlacements::arena_bytes() const {
  std::uint64_t most = 0;
  for (const auto& [key, entry] : entries_)
    if (entry.plan) most = std::max(most, entry.plan->arena_bytes());
  return most;
}

bool StepPlacements::note_departure(StepPart part, std::int64_t batch) {
  Entry& entry = entries_[key(part, batch)];
  if (++entry.departures >= kMostDepartures) entry.plan.reset();
  return !std::exchange(departed_, true);
}

void StepPlacements::note_followed(StepPart part, std::int64_t batch) { entries_[key(part, batch)].departures = 0; }

}  // namespace bantam
