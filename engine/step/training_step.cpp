// The step: one tape a micro-batch, one update an effective batch, metrics kept on the device.
#include "bantam/engine/step/training_step.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/model/norm_exchange.h"
#include "bantam/engine/model/synchronise.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/step/captured_updates.h"
#include "bantam/engine/step/metric_ring.h"
#include "bantam/engine/step/random_batch.h"
#include "bantam/engine/step/replica_tree.h"
#include "bantam/engine/step/step_placements.h"
#include "bantam/kernels/head/softmax_cross_entropy.h"
#include "bantam/kernels/metric/view_outputs.h"
#include "bantam/kernels/update/update.h"
#include "bantam/memory/device/trace_range.h"

namespace bantam {

namespace {

static_assert(TrainingStep::kMetricRing == kernels::kMetricSlots);

/// Throws where the data's tensor `has` (null: there is none) is not what the step reads.
void check_tensor(const TensorFacts& reads, const TensorFacts* has, std::string_view what) {
  if (has == nullptr)
    throw ShapeError(fmt::format("the {} data have no '{}', which the loss or a metric reads", what, reads.name));
  if (has->classes != reads.classes && reads.classes > 0)
    throw ShapeError(fmt::format("the {} data have {} classes, the model has {}", what, has->classes, reads.classes));
  if (has->shape != reads.shape)
    throw ShapeError(fmt::format("the {} data's '{}' are {}, expected {}", what, reads.name, to_string(has->shape),
                                 to_string(reads.shape)));
  const auto name = [](std::optional<DType> dtype) { return dtype ? to_string(*dtype) : "the model's type"; };
  if (has->dtype != reads.dtype)
    throw DTypeError(fmt::format("the {} data's '{}' are of {}, expected {}", what, reads.name, name(has->dtype),
                                 name(reads.dtype)));
}

void add_targets(std::vector<TensorFacts>& all, const std::vector<TensorFacts>& more) {
  for (const TensorFacts& facts : more) {
    const TensorFacts* known = find_facts(all, facts.name);
    if (known == nullptr)
      all.push_back(facts);
    else if (known->shape != facts.shape || known->dtype != facts.dtype)
      throw ShapeError(fmt::format("loss and metrics read different '{}': {} and {}", facts.name,
                                   to_string(known->shape), to_string(facts.shape)));
  }
}

}  // namespace

std::vector<TensorFacts> targets_of(const LossOptions& loss, const Shape& output) {
  std::vector<TensorFacts> all = loss.loss->targets(output);
  for (const MetricPtr& metric : loss.metrics) add_targets(all, metric->targets(output));
  return all;
}

Batch allocate_batch(const Model& model, std::int64_t size, const LossOptions& loss) {
  const Context context = model.context(Pass::train).at(model.runtime().intern("input"));
  const DType compute = context.precision.compute();
  Batch batch{.size = size};
  batch.tensors.set(kImages, context.allocate(model.graph().input_shape().prepend(size), compute, Category::input));
  for (const TensorFacts& facts : targets_of(loss, model.graph().output_shape()))
    if (facts.name != kImages)
      batch.tensors.set(facts.name,
                        context.allocate(facts.shape.prepend(size), facts.dtype.value_or(compute), Category::input));
  return batch;
}

std::string without_meta(const Graph& graph, const LossOptions& loss, const OptimizerOptions& optimizer) {
  const auto message = [](const std::string& who, const char* kind) {
    return fmt::format("{} does not support meta devices ({}::supports_meta)", who, kind);
  };
  if (const NodeId node = graph.first_without_meta(); node != 0) return message(graph.describe(node), "Layer");
  if (!loss.loss->supports_meta()) return message(fmt::format("the loss '{}'", loss.loss->kind()), "Loss");
  for (const MetricPtr& metric : loss.metrics)
    if (!metric->supports_meta()) return message(fmt::format("the metric '{}'", metric->kind()), "Metric");
  if (optimizer.rule && !optimizer.rule->supports_meta())  // Optimizer refuses one without a rule
    return message(fmt::format("the update rule '{}'", optimizer.rule->kind()), "UpdateRule");
  return "";
}

namespace {

void check_size(const Batch& batch) {
  if (batch.size < 1) throw ShapeError(fmt::format("Batch::size is {}, expected at least 1", batch.size));
  for (const auto& [name, tensor] : batch.tensors)
    if (tensor.shape().rank() == 0 || tensor.shape()[0] != batch.size)
      throw ShapeError(fmt::format("Batch::size is {}, but its '{}' is {}: expected one row a sample", batch.size, name,
                                   to_string(tensor.shape())));
}

LossOptions loss_for(const Model& model, LossOptions loss) {
  loss.metrics = metrics_for(model.graph().output_shape(), std::move(loss.metrics));
  return loss;
}

/// Synchronised norms leave the other ranks out, which need not do the same: warm up, or look for what is not finite.
struct WithoutOthers {
  WithoutOthers(NormExchange* exchange, bool skips_after) : norms(exchange), after(skips_after) {
    if (norms != nullptr) norms->skip(true);
  }
  ~WithoutOthers() {
    if (norms != nullptr) norms->skip(after);
  }
  WithoutOthers(const WithoutOthers&) = delete;
  WithoutOthers& operator=(const WithoutOthers&) = delete;
  NormExchange* norms;
  bool after;
};

/// Null where there is one replica, or no other GPU.
RankExchange* exchange_of(const std::unique_ptr<ReplicaTree>& tree) { return tree ? tree->device_exchange() : nullptr; }

}  // namespace

TrainingStep::TrainingStep(Model& model, Optimizer& optimizer, LossOptions loss, const ReplicaOptions& replicas)
    : model_(model),
      optimizer_(optimizer),
      loss_(loss_for(model, std::move(loss))),
      replicas_(replicas),
      ring_(std::make_unique<MetricRing>(model, loss_.metrics)) {
  (void)targets_of(loss_, model_.graph().output_shape());
  check_replicas(replicas_);
  if (loss_.views) {
    check_views(*loss_.views, *loss_.loss, replicas_.replicas);
    check_views(*loss_.views, model_.graph());
  }
  if (replicas_.replicas == 1) return;
  if (has_synchronised_norms(model_.graph()))
    norms_ = std::make_unique<NormExchange>(model_, replicas_.ranks, replicas_.replicas,
                                            std::max<std::size_t>(replicas_.dealt.size(), 1), replicas_.rank);
  tree_ = std::make_unique<ReplicaTree>(model_, *ring_, replicas_);
}

int TrainingStep::unsynchronised_metrics() const { return ring_->unsynchronised(); }

std::uint64_t TrainingStep::arena_bytes() const { return placements_ ? placements_->arena_bytes() : 0; }

TrainingStep::~TrainingStep() {
  try {
    if (!placements_) return;
    model_.parameters()
        .partial_gradients()
        .add_up();  // of an effective batch without its update: parts lie in the arena
    (void)memory().release_arena();
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
}

void TrainingStep::check_fits(std::span<const TensorFacts> tensors, std::string_view what) const {
  const Graph& graph = model_.graph();
  const TensorFacts* images = find_facts(tensors, kImages);
  if (images == nullptr) throw ShapeError(fmt::format("the {} data have no '{}', the model's input", what, kImages));
  if (images->shape != graph.input_shape())
    throw ShapeError(fmt::format("the {} data have images {}, the model expects {}", what, to_string(images->shape),
                                 to_string(graph.input_shape())));
  for (const TensorFacts& facts : targets_of(loss_, graph.output_shape()))
    check_tensor(facts, find_facts(tensors, facts.name), what);
}

std::string TrainingStep::without_meta() const {
  return bantam::without_meta(model_.graph(), loss_, optimizer_.options());
}

BfcAllocator& TrainingStep::memory() const { return model_.runtime().allocator(model_.device()); }

void TrainingStep::prepare(const StepShapes& shapes) {
  try {
    if (!placements_) {
      placements_ = std::make_shared<StepPlacements>(model_.graph(), model_.options(), optimizer_.options(), loss_,
                                                     model_.device(), replicas_);
      if (placements_->learns())
        model_.runtime().log(fmt::format("{}: each part of a step runs unplanned once, and is planned from that run on",
                                         without_meta()));
    }
    placements_->prepare(shapes);
    eager_parts_ = 0;
    (void)reserve_arena();
  } catch (const Error& error) {
    stay_eager(error);
  }
}

void TrainingStep::prepare(const StepShapes& shapes, std::shared_ptr<StepPlacements> placements) {
  placements_ = std::move(placements);
  prepare(shapes);
}

bool TrainingStep::reserve_arena() {
  constexpr int kPause = 100;  // where memory is short, asking costs time
  if (placements_->arena_bytes() == 0) return false;
  if (eager_parts_ > 0) {
    --eager_parts_;
    return false;
  }
  if (memory().reserve_arena(placements_->arena_bytes(), model_.runtime().stream(model_.device()))) return true;
  eager_parts_ = kPause;
  return false;
}

/// After plans were dropped: an arena larger than the rest need is released, and the next step reserves what it needs.
void TrainingStep::shrink_arena() {
  const std::uint64_t needed = placements_->arena_bytes();
  if (memory().stats().arena_bytes >= needed + BfcAllocator::kAllocationUnit) (void)memory().release_arena();
}

void TrainingStep::drop_plans_above(std::int64_t samples) {
  if (!placements_) return;
  placements_->drop_above(samples);
  eager_parts_ = 0;  // what was not to be had may be, now that it is less
  shrink_arena();
}

std::shared_ptr<const PlacementPlan> TrainingStep::plan_for(StepPart part, std::int64_t batch) {
  if (!placements_) return nullptr;
  try {
    std::shared_ptr<const PlacementPlan> plan = placements_->plan(part, batch);
    return plan != nullptr && reserve_arena() ? plan : nullptr;
  } catch (const Error& error) {
    stay_eager(error);
    return nullptr;
  }
}

void TrainingStep::stay_eager(const Error& error) {
  learning_.reset();
  placements_.reset();
  model_.runtime().log(fmt::format("steps run unplanned: {}", error.what()));
}

/// Runs `work` from the arena where it was planned. A part that departs and then finds no memory runs once more,
/// unplanned, with the arena's memory free for it; but not within an effective batch, which only its caller can repeat.
void TrainingStep::run_part(StepPart part, std::int64_t batch, const std::function<void()>& work) {
  if (part != StepPart::update) {
    model_.parameters().partial_gradients().add_up();  // the arena must be idle
    learn();
  }
  if (recorded_updates_ != kNotRecording) return record_part(part, batch, work);
  const std::shared_ptr<const PlacementPlan> plan = plan_for(part, batch);
  if (plan == nullptr) return run_unplanned(part, batch, work);
  bool departed = false;
  try {
    const PlacementScope scope(memory(), plan, model_.runtime().stream(model_.device()));
    try {
      work();
    } catch (const OutOfMemory&) {
      departed = scope.departed();
      throw;
    }
    departed = scope.departed();
  } catch (const OutOfMemory&) {
    if (part == StepPart::update) throw;  // its gradients wait to be repeated
    model_.parameters().partial_gradients().drop();
    if (!departed || part == StepPart::next_micro_batch || !memory().release_arena()) throw;
    if (part == StepPart::first_micro_batch && tree_) {
      tree_->restart();
    } else if (part == StepPart::first_micro_batch) {
      discard();
      accumulating_ = true;
    }
    work();
  }
  if (!departed) return placements_->note_followed(part, batch);
  if (placements_->note_departure(part, batch))
    model_.runtime().log("a step did not allocate as planned; it went on from the allocator");
  shrink_arena();
}

/// Runs `work` as it comes. Where plans are learned, its calls are noted, up to where its last memory is free: after an
/// update or an evaluated batch, or where the next part begins.
void TrainingStep::run_unplanned(StepPart part, std::int64_t batch, const std::function<void()>& work) {
  if (placements_ && placements_->to_learn(part, batch) && memory().trace() == nullptr)
    learning_ = std::make_unique<PartTrace>(memory(), model_.runtime().stream(model_.device()), part, batch);
  try {
    work();
  } catch (...) {
    learning_.reset();
    throw;
  }
  if (part != StepPart::first_micro_batch && part != StepPart::next_micro_batch)
    learn();
  else if (learning_)
    learning_->end_part();
}

void TrainingStep::learn() {
  const std::unique_ptr<PartTrace> noted = std::move(learning_);
  if (!noted || !placements_) return;
  noted->stop();
  try {
    if (!placements_->learn(*noted))
      model_.runtime().log("a part of the step keeps memory that it allocates: it runs unplanned");
  } catch (const Error& error) {
    stay_eager(error);
  }
}

void TrainingStep::micro_batch(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch) {
  if (recorded_updates_ == kNotRecording) require_metric_slots(1);
  if (tree_ && !tree_->running()) begin_replica();
  const bool first = tree_ ? tree_->take_first() : !accumulating_;
  const StepPart part = first ? StepPart::first_micro_batch : StepPart::next_micro_batch;
  accumulating_ = true;
  try {
    check_size(batch);
    run_part(part, batch.size, [&] { forward_and_backward(batch, first_sample, effective_batch); });
  } catch (...) {  // out of memory, say: nothing of the effective batch stays, so that it can be tried again in smaller
                   // micro-batches
    discard();
    throw;
  }
}

void TrainingStep::begin_replica() {
  if (!tree_) return;
  try {
    const kernels::KernelPhaseScope phase(model_.runtime().exec(model_.device()).log, kernels::KernelPhase::update);
    tree_->begin();
  } catch (...) {
    discard();
    throw;
  }
}

void TrainingStep::expect_last_micro_batch() {
  if (tree_) tree_->expect_last();
}

void TrainingStep::end_replicas(bool exchanges) {
  if (tree_) tree_->end(optimizer_.metric_slot_address(), exchanges);
}

double TrainingStep::time_exchange(int times) {
  if (accumulating_) throw Error("training step: time_exchange() between micro_batch() and update()");
  RankExchange* const exchange = exchange_of(tree_);
  return exchange != nullptr ? exchange->time(times) : 0;
}

void TrainingStep::skip_exchange(bool skips) {
  if (RankExchange* const exchange = exchange_of(tree_)) exchange->skip(skips);
  skips_exchange_ = skips;
  if (norms_) norms_->skip(skips);
}

void TrainingStep::time_exchange_waits(bool times) {
  if (RankExchange* const exchange = exchange_of(tree_)) exchange->time_waits(times);
}

std::vector<double> TrainingStep::exchange_waits() const {
  const RankExchange* const exchange = exchange_of(tree_);
  return exchange != nullptr ? exchange->waits() : std::vector<double>();
}

std::string TrainingStep::transport() const {
  const RankExchange* const exchange = exchange_of(tree_);
  return exchange != nullptr ? exchange->transport() : "";
}

void TrainingStep::discard() {
  if (recorded_updates_ != kNotRecording) return;  // capture() discards them
  const Context context = model_.context(Pass::train);
  if (tree_) tree_->reset();
  model_.parameters().begin_accumulation();
  learn();
  model_.buffers().reset_next(context);
  ring_->clear(optimizer_.metric_slot());
  accumulating_ = false;
}

void TrainingStep::forward_and_backward(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch) {
  memory().note_phase("forward");
  std::optional<TraceRange> forward(std::in_place, model_.device(), "forward");
  Tape tape;
  Context context = model_.context(Pass::train);
  context.tape = &tape;
  // Those of replicas are to be added: each is whole.
  context.step.gradients = tree_ ? nullptr : &model_.parameters().partial_gradients();
  context.step.norms = norms_.get();
  if (batch.size < full_batch_)
    context.step.batch_share = static_cast<float>(batch.size) / static_cast<float>(full_batch_);
  context.random.update = optimizer_.updates();
  context.random.first_sample = first_sample;
  if (hooks_ != nullptr) {
    context.step.gradients = nullptr;  // so that each is in its place once it was written
    tape.set_gradient_hook(hooks_->gradient);
    tape.set_parameter_hook([this](Parameter& parameter) { hooks_->parameter(parameter); });
    hooks_->begin(first_sample, batch);
  } else if (RankExchange* const exchange = tree_ ? tree_->watcher() : nullptr; exchange != nullptr) {
    tape.set_parameter_hook([exchange](Parameter& parameter) { exchange->written(parameter); });
  }
  const Tensor seed = hooks_ != nullptr ? seed_ : optimizer_.loss_scale();
  kernels::KernelLog* const log = context.exec.log;
  std::optional<kernels::KernelPhaseScope> phase(std::in_place, log, kernels::KernelPhase::forward);
  const Tensor loss = forward_loss(context, batch, training_call(effective_batch, seed), false);
  memory().note_phase("backward");
  forward.reset();
  const TraceRange backward(model_.device(), "backward");
  phase.emplace(log, kernels::KernelPhase::backward);
  if (hooks_ != nullptr) hooks_->loss(loss);
  tape.backward(context, loss, seed);
}

LossCall TrainingStep::training_call(std::int64_t effective_batch, const Tensor& seed) const {
  LossCall call{.divisor = loss_.mean ? static_cast<float>(effective_batch) : 1.0f, .seed = seed};
  if (hooks_ == nullptr) {
    call.sums = tree_ ? reinterpret_cast<kernels::MetricSums*>(tree_->metrics()) : ring_->updates();
    call.slot = tree_ ? nullptr : optimizer_.metric_slot_address();  // of the update under way, which the device knows
  }
  return call;
}

/// The output, where metrics read it, is gone before backward begins, but for what the loss keeps of it.
Tensor TrainingStep::forward_loss(const Context& context, const Batch& batch, const LossCall& call,
                                  bool evaluation) const {
  if (!ring_->reads_output(evaluation)) return model_.forward_loss(context, batch.tensors, *loss_.loss, call);
  Tensor output, loss = model_.forward_loss(context, batch.tensors, *loss_.loss, call, &output);
  if (tree_ && !evaluation)
    ring_->accumulate_apart(context, output, batch.tensors, tree_->metrics());
  else
    ring_->accumulate(context, output, batch.tensors, evaluation ? nullptr : optimizer_.metric_slot_address());
  return loss;
}

void TrainingStep::update() {
  if (!accumulating_) throw Error("training step: update() without a micro-batch");
  memory().note_phase("update");
  const TraceRange range(model_.device(), "update");
  const bool recording = recorded_updates_ != kNotRecording;
  const int slot = optimizer_.metric_slot(), rate = recording ? recorded_updates_ : 0;
  try {
    const kernels::KernelPhaseScope phase(model_.runtime().exec(model_.device()).log, kernels::KernelPhase::update);
    end_replicas();
    run_part(StepPart::update, 0, [this, rate] { optimizer_.update(rate, ring_->rows()); });
  } catch (...) {  // not for memory: it allocates none
    discard();
    throw;
  }
  if (tree_) tree_->reset();
  accumulating_ = false;
  if (recording)
    ++recorded_updates_;
  else
    ring_->note(slot);
}

void TrainingStep::require_metric_slots(int updates) const {
  if (unsynchronised_metrics() + updates > kMetricRing)
    throw Error(fmt::format("training step: metrics of {} updates are not read yet; call read_metrics()",
                            unsynchronised_metrics()));
}

/// One more update has run without `update`.
void TrainingStep::note_update() {
  ring_->note(optimizer_.metric_slot());
  optimizer_.set_metric_slot(optimizer_.metric_slot() + 1);
}

void TrainingStep::evaluate(const Batch& batch) {
  check_size(batch);
  run_part(StepPart::evaluation, batch.size, [&] { forward_and_measure(batch); });
}

void TrainingStep::evaluate_outputs(const Tensor& images, const OutputsTo& to) {
  const std::int64_t size = images.shape()[0];
  run_part(StepPart::evaluation_outputs, size, [&] {
    const Context context = model_.context(Pass::evaluate);
    const kernels::KernelPhaseScope phase(context.exec.log, kernels::KernelPhase::forward);
    const Tensor y = model_.forward(context, images);
    const Context local = context.at(model_.runtime().intern("views"));
    BANTAM_KERNEL(
        local.exec, view_outputs,
        {.rows = size, .columns = y.shape().without_first().elements(), .adds = to.adds, .divisor = to.divisor},
        y.dtype(), y.data(), to.places, to.sums);
  });
}

void TrainingStep::evaluate_measures(const Batch& batch, const Tensor& outputs) {
  check_size(batch);
  run_part(StepPart::evaluation_measures, batch.size, [&] {
    count_evaluation([&](const Context& context) {
      (void)loss_.loss->forward(context.at(model_.runtime().intern("loss")), outputs, batch.tensors,
                                {.sums = ring_->evaluation()});
      if (ring_->reads_output(true)) ring_->accumulate(context, outputs, batch.tensors, nullptr);
    });
  });
}

void TrainingStep::forward_and_measure(const Batch& batch) {
  count_evaluation(
      [&](const Context& context) { (void)forward_loss(context, batch, {.sums = ring_->evaluation()}, true); });
}

/// Runs `count`, which adds to the evaluation's sums; where it throws, what it has added is removed.
void TrainingStep::count_evaluation(const std::function<void(const Context& context)>& count) {
  const Context context = model_.context(Pass::evaluate);
  const kernels::KernelPhaseScope phase(context.exec.log, kernels::KernelPhase::forward);
  ring_->begin_evaluation();
  try {
    count(context);
  } catch (...) {  // out of memory, say: it may be repeated in smaller micro-batches
    ring_->undo_evaluation();
    throw;
  }
}

void TrainingStep::look_into(const StepHooks& hooks, float loss_scale, const std::function<void()>& run) {
  if (accumulating_) throw Error("training step: look_into() between micro_batch() and update()");
  const std::shared_ptr<StepPlacements> placements = std::exchange(placements_, nullptr);
  (void)memory().release_arena();  // what is looked at needs memory, too
  const WithoutOthers alone(norms_.get(), skips_exchange_);
  const auto end = [&] {
    model_.set_hooks(nullptr);
    hooks_ = nullptr;
    seed_ = Tensor();
    discard();
    placements_ = placements;
  };
  try {
    seed_ = model_.context(Pass::train).upload({}, &loss_scale);
    hooks_ = &hooks;
    model_.set_hooks(&hooks);
    run();
  } catch (...) {
    end();
    throw;
  }
  end();
}

// Metrics on their way from the device's ring to the host.

void TrainingStep::begin_reading() {
  if (accumulating_) throw Error("training step: metrics are read between micro_batch() and update()");
  model_.runtime().refresh_limit(model_.device());  // first: where it throws, the metrics can still be read
  ring_->begin_reading(optimizer_.control_address());
}

std::vector<Metrics> TrainingStep::finish_reading(kernels::UpdateControl* control, std::vector<UpdateReport>* values) {
  return ring_->finish_reading(control, values);
}

std::vector<Metrics> TrainingStep::read_metrics() {
  begin_reading();
  return finish_reading();
}

Metrics TrainingStep::read_evaluation() { return ring_->read_evaluation(); }

std::vector<double> TrainingStep::take_evaluation_sums() { return ring_->take_evaluation(); }

Metrics TrainingStep::evaluation_from(const std::vector<double>& sums) const { return ring_->evaluation_from(sums); }

// A training step's captured mode: updates recorded from the arena's places, and replayed as long as it does not move.

std::unique_ptr<CapturedUpdates> TrainingStep::capture(const std::function<void()>& record) {
  if (accumulating_) throw Error("training step: capture() between micro_batch() and update()");
  if (!placements_ || !reserve_arena()) throw Error("steps are not planned");
  if (const std::string what = without_meta(); !what.empty()) throw Error(what);  // the host's part is not recorded
  const Stream stream = model_.runtime().stream(model_.device());
  const int slot = optimizer_.metric_slot();
  const void* arena = memory().arena_address();
  recorded_updates_ = 0;
  PartialGradients& partial = model_.parameters().partial_gradients();
  const kernels::NarrowGradients narrow = partial.narrow();
  const auto end = [&] {  // the host is where it was: nothing has run
    accumulating_ = false;
    if (tree_) tree_->reset();
    model_.parameters().begin_accumulation();
    partial.set_narrow(narrow);
    optimizer_.set_metric_slot(slot);
    return std::exchange(recorded_updates_, kNotRecording);
  };
  try {
    CapturedWork work(stream, record);
    if (accumulating_) throw Error("training step: what is captured must end with update()");
    if (memory().arena_address() != arena) throw Error("the planned step's arena moved");
    const kernels::NarrowGradients left = partial.narrow();
    const int updates = end();
    return std::make_unique<CapturedUpdates>(
        CapturedUpdates{std::move(work), updates, arena, placements_->arena_bytes(), left});
  } catch (...) {
    (void)end();
    throw;
  }
}

bool TrainingStep::replay(const CapturedUpdates& captured) {
  if (accumulating_) throw Error("training step: replay() between micro_batch() and update()");
  require_metric_slots(captured.updates);
  if (!placements_ || !reserve_arena()) return false;
  const Stream stream = model_.runtime().stream(model_.device());
  const ArenaHold hold(memory(), captured.arena, captured.arena_bytes, stream);
  if (!hold.acquired()) return false;
  captured.work.launch();
  model_.parameters().partial_gradients().set_narrow(captured.narrow);
  for (int i = 0; i < captured.updates; ++i) note_update();
  return true;
}

/// Runs a part while it is recorded: all of its memory must be the arena's.
void TrainingStep::record_part(StepPart part, std::int64_t batch, const std::function<void()>& work) {
  const std::shared_ptr<const PlacementPlan> plan = plan_for(part, batch);
  const MemoryStats before = memory().stats();
  const PlacementScope scope(memory(), plan, model_.runtime().stream(model_.device()));
  work();
  const MemoryStats after = memory().stats();  // a part that allocates nothing has no plan, and needs none
  if (after.allocations - before.allocations != after.planned_allocations - before.planned_allocations)
    throw Error("the step did not allocate as planned");
}

// A training step's warm-up: everything runs once, and nothing is different afterwards but what the device has
// loaded.

void TrainingStep::warm_up(std::int64_t batch_size, bool accumulates) {
  if (accumulating_) throw Error("training step: warm_up() between micro_batch() and update()");
  const Stream stream = model_.runtime().stream(model_.device());
  const Batch batch =
      random_batch(model_, batch_size, philox_key(model_.options().seed, RandomPurpose::dataset), loss_);
  {
    const WithoutOthers alone(norms_.get(), skips_exchange_);
    micro_batch(batch, 0, batch_size * (accumulates ? 2 : 1));
    if (accumulates) micro_batch(batch, batch_size, batch_size * 2);
  }
  for (int replica = 1; replica < replicas_.count(); ++replica) begin_replica();  // to add up sums, of nothing
  end_replicas(false);
  discard();
  const std::vector<std::byte> kept = ring_->save_evaluation();  // that was not read yet
  if (loss_.views)
    warm_up_views(*this, batch);
  else
    evaluate(batch);
  ring_->restore_evaluation(kept);
  optimizer_.warm_up();
  synchronize(stream);
}

std::int64_t warm_up_what_fits(TrainingStep& step, std::int64_t batch, bool accumulates) {
  for (std::int64_t samples = batch;; samples = (samples + 1) / 2) {
    try {
      step.warm_up(samples, accumulates || samples < batch);
      return samples;
    } catch (const OutOfMemory&) {
      if (samples <= 1) return 0;
      Model& model = step.model();
      model.runtime().allocator(model.device()).trim();
    }
  }
}

}  // namespace bantam
