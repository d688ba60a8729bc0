// The step: one tape a micro-batch, one update an effective batch, metrics left on the device.
#include "bantam/engine/step/training_step.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/step/random_batch.h"

namespace bantam {

namespace {

constexpr std::size_t kSumsBytes = sizeof(kernels::MetricSums);

}  // namespace

Batch allocate_batch(const Model& model, std::int64_t size) {
  const Context context = model.context(Pass::train).at(model.runtime().intern("input"));
  Batch batch{.size = size};
  batch.tensors.set(kImages, context.allocate(model.graph().input_shape().prepend(size), context.precision.compute(),
                                              Category::input));
  batch.tensors.set(kLabels, context.allocate({size}, DType::int32, Category::input));
  return batch;
}

TrainingStep::TrainingStep(Model& model, Optimizer& optimizer, LossOptions loss)
    : model_(model), optimizer_(optimizer), loss_(loss) {
  if (model_.graph().output_shape().rank() != 1)
    throw ShapeError(fmt::format("the loss needs an output of (classes), the model's is {}",
                                 to_string(model_.graph().output_shape())));
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("metrics"));
  ring_ = context.allocate({(kMetricRing + 1) * static_cast<std::int64_t>(kSumsBytes)}, DType::uint8, Category::other);
  zero_bytes(ring_.data(), ring_.bytes(), context.stream);
}

TrainingStep::~TrainingStep() {
  try {
    if (read_) read_->synchronize();  // the host's memory goes
    if (!placements_) return;
    model_.parameters().pending().add_up();  // of an effective batch without its update: parts lie in the arena
    (void)memory().release_arena();
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
}

BfcAllocator& TrainingStep::memory() const { return model_.runtime().allocator(model_.device()); }

void TrainingStep::prepare(const StepShapes& shapes) {
  try {
    if (!placements_) {
      const Graph& graph = model_.graph();
      placements_ =
          std::make_shared<StepPlacements>(graph, model_.options(), optimizer_.options(), loss_, model_.device());
      if (placements_->learns())
        model_.runtime().log(
            fmt::format("{} does not support meta devices (Layer::supports_meta): each part of a step runs unplanned "
                        "once, and is planned from that run on",
                        graph.describe(graph.first_without_meta())));
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

/// After plans were dropped: an arena larger than the rest need makes room, and the next step takes what it needs.
void TrainingStep::shrink_arena() {
  const std::uint64_t needed = placements_->arena_bytes();
  if (memory().stats().arena_bytes >= needed + BfcAllocator::kGranule) (void)memory().release_arena();
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
    model_.parameters().pending().add_up();  // the arena must be idle
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
    model_.parameters().pending().drop();
    if (!departed || part == StepPart::next_micro_batch || !memory().release_arena()) throw;
    if (part == StepPart::first_micro_batch) {
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

/// Runs `work` as it comes. Where plans are learned, its calls are noted, up to where its last memory is free: behind
/// an update or an evaluated batch, or where the next part begins.
void TrainingStep::run_unplanned(StepPart part, std::int64_t batch, const std::function<void()>& work) {
  if (placements_ && placements_->to_learn(part, batch) && memory().trace() == nullptr)
    learning_ = std::make_unique<PartTrace>(memory(), model_.runtime().stream(model_.device()), part, batch);
  try {
    work();
  } catch (...) {
    learning_.reset();
    throw;
  }
  if (part == StepPart::update || part == StepPart::evaluation)
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
  const StepPart part = accumulating_ ? StepPart::next_micro_batch : StepPart::first_micro_batch;
  accumulating_ = true;
  try {
    run_part(part, batch.size, [&] { forward_and_backward(batch, first_sample, effective_batch); });
  } catch (...) {  // out of memory, say: nothing of the effective batch stays, so that it can be tried again in smaller
                   // pieces
    if (recorded_updates_ == kNotRecording) discard();
    throw;
  }
}

void TrainingStep::discard() {
  const Context context = model_.context(Pass::train);
  model_.parameters().begin_accumulation();
  learn();
  model_.buffers().reset_pending(context);
  zero_bytes(ring_.as<kernels::MetricSums>() + optimizer_.metric_slot(), kSumsBytes, context.stream);
  accumulating_ = false;
}

void TrainingStep::forward_and_backward(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch) {
  memory().note_phase("forward");
  Tape tape;
  Context context = model_.context(Pass::train);
  context.tape = &tape;
  context.pending = &model_.parameters().pending();
  context.random.update = optimizer_.updates();
  context.random.first_sample = first_sample;
  const Tensor loss = model_.forward_loss(
      context, batch.at(kImages), batch.at(kLabels),
      {{.label_smoothing = loss_.label_smoothing,
        .divisor = loss_.mean ? static_cast<float>(effective_batch) : 1.0f,
        .metrics = ring_.as<kernels::MetricSums>(),
        .metric_slot = optimizer_.metric_slot_address()},  // of the update under way, which the device knows
       optimizer_.loss_scale()});
  memory().note_phase("backward");
  tape.backward(context, loss, optimizer_.loss_scale());
}

void TrainingStep::update() {
  if (!accumulating_) throw Error("training step: update() without a micro-batch");
  memory().note_phase("update");
  const bool recording = recorded_updates_ != kNotRecording;
  const int slot = optimizer_.metric_slot(), rate = recording ? recorded_updates_ : 0;
  try {
    run_part(StepPart::update, 0, [this, rate] { optimizer_.update(rate); });
  } catch (...) {  // not for memory, of which it takes none
    if (!recording) discard();
    throw;
  }
  accumulating_ = false;
  if (recording)
    ++recorded_updates_;
  else
    pending_slots_.push_back(slot);
}

void TrainingStep::require_metric_slots(int updates) const {
  if (pending_metrics() + updates > kMetricRing)
    throw Error(
        fmt::format("training step: metrics of {} updates are pending; call read_metrics()", pending_metrics()));
}

/// One more update has run without `update`.
void TrainingStep::note_update() {
  pending_slots_.push_back(optimizer_.metric_slot());
  optimizer_.set_metric_slot(optimizer_.metric_slot() + 1);
}

void TrainingStep::evaluate(const Batch& batch) {
  run_part(StepPart::evaluation, batch.size, [&] { forward_and_measure(batch); });
}

void TrainingStep::forward_and_measure(const Batch& batch) {
  const Context context = model_.context(Pass::evaluate);
  (void)model_.forward_loss(
      context, batch.at(kImages), batch.at(kLabels),
      {{.label_smoothing = loss_.label_smoothing, .metrics = ring_.as<kernels::MetricSums>() + kMetricRing}, {}});
}

// Metrics on their way from the device's ring to the host.

namespace {

constexpr std::size_t kRingBytes = sizeof(kernels::MetricSums) * TrainingStep::kMetricRing;
constexpr std::size_t kControlBytes = sizeof(kernels::UpdateControl);

Metrics to_metrics(const kernels::MetricSums& sums) {
  const auto samples = static_cast<std::int64_t>(sums.samples);
  if (samples == 0) return {};
  return {sums.loss / sums.samples, sums.correct / sums.samples, samples};
}

/// Host memory of `bytes` that the device can copy to while the host goes on. Where the device is the host, or none at
/// all, it is no part of a run's memory.
Tensor reading_memory(Runtime& runtime, Device device, std::size_t bytes) {
  const Shape shape{static_cast<std::int64_t>(bytes)};
  if (device.is_cuda())
    return {std::make_shared<Storage>(runtime.pinned_allocator(), bytes, Stream{},
                                      AllocationTag{Category::other, "metrics"}),
            shape, DType::uint8};
  return {std::make_shared<Storage>(new std::byte[bytes](), bytes, Device::cpu(),
                                    [](void* data) { delete[] static_cast<std::byte*>(data); }),
          shape, DType::uint8};
}

}  // namespace

void TrainingStep::begin_reading() {
  if (accumulating_) throw Error("training step: metrics are read between micro_batch() and update()");
  model_.runtime().refresh_limit(model_.device());  // first: where it throws, the metrics can still be read
  if (!reading_.defined()) {
    reading_ = reading_memory(model_.runtime(), model_.device(), kRingBytes + kControlBytes);
    read_.emplace(model_.device());
  }
  read_->synchronize();  // one that was not finished is dropped
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(reading_.data(), ring_.data(), kRingBytes, stream);
  copy_bytes(reading_.as<std::byte>() + kRingBytes, optimizer_.control_address(), kControlBytes, stream);
  zero_bytes(ring_.data(), kRingBytes, stream);
  read_->record(stream);
  read_slots_ = std::exchange(pending_slots_, {});
}

std::vector<Metrics> TrainingStep::finish_reading(kernels::UpdateControl* control) {
  std::vector<Metrics> metrics;
  if (!reading_.defined()) return metrics;
  read_->synchronize();
  const bool meta = model_.device().meta;  // which has no values
  if (control != nullptr && !meta) std::memcpy(control, reading_.as<std::byte>() + kRingBytes, kControlBytes);
  for (const int slot : read_slots_)
    metrics.push_back(meta ? Metrics{} : to_metrics(reading_.as<kernels::MetricSums>()[slot]));
  read_slots_.clear();
  return metrics;
}

std::vector<Metrics> TrainingStep::read_metrics() {
  begin_reading();
  return finish_reading();
}

Metrics TrainingStep::read_evaluation() {
  kernels::MetricSums sums;
  auto* place = ring_.as<kernels::MetricSums>() + kMetricRing;
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(&sums, place, sizeof(sums), stream);
  zero_bytes(place, sizeof(sums), stream);
  synchronize(stream);
  return to_metrics(sums);
}

// A training step's captured mode: updates recorded from the arena's places, and run again as long as it lies there.

std::unique_ptr<CapturedUpdates> TrainingStep::capture(const std::function<void()>& record) {
  if (accumulating_) throw Error("training step: capture() between micro_batch() and update()");
  if (!placements_ || !reserve_arena()) throw Error("steps are not planned");
  const Graph& graph = model_.graph();
  if (const NodeId node = graph.first_without_meta(); node != 0)  // what it does on the host would not be recorded
    throw Error(fmt::format("{} does not support meta devices (Layer::supports_meta)", graph.describe(node)));
  const Stream stream = model_.runtime().stream(model_.device());
  const int slot = optimizer_.metric_slot();
  const void* arena = memory().arena_address();
  recorded_updates_ = 0;
  PendingGradients& pending = model_.parameters().pending();
  const kernels::NarrowGradients narrow = pending.narrow();
  const auto end = [&] {  // the host is where it was: nothing has run
    accumulating_ = false;
    model_.parameters().begin_accumulation();
    pending.set_narrow(narrow);
    optimizer_.set_metric_slot(slot);
    return std::exchange(recorded_updates_, kNotRecording);
  };
  try {
    CapturedWork work(stream, record);
    if (accumulating_) throw Error("training step: what is captured must end with update()");
    if (memory().arena_address() != arena) throw Error("the planned step's arena moved");
    const kernels::NarrowGradients left = pending.narrow();
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
  if (!hold.held()) return false;
  captured.work.launch();
  model_.parameters().pending().set_narrow(captured.narrow);
  for (int i = 0; i < captured.updates; ++i) note_update();
  return true;
}

/// Runs a part while it is recorded: all of its memory must be the arena's.
void TrainingStep::record_part(StepPart part, std::int64_t batch, const std::function<void()>& work) {
  const std::shared_ptr<const PlacementPlan> plan = plan_for(part, batch);
  const MemoryStats before = memory().stats();
  const PlacementScope scope(memory(), plan, model_.runtime().stream(model_.device()));
  work();
  const MemoryStats after = memory().stats();  // a part that takes no memory has no plan, and needs none
  if (after.allocations - before.allocations != after.planned_allocations - before.planned_allocations)
    throw Error("the step did not allocate as planned");
}

// A training step's warm-up: everything runs once, and nothing is different afterwards but what the device has
// loaded.

void TrainingStep::warm_up(std::int64_t batch_size, bool accumulates) {
  if (accumulating_) throw Error("training step: warm_up() between micro_batch() and update()");
  const Stream stream = model_.runtime().stream(model_.device());
  const Batch batch = random_batch(model_, batch_size, philox_key(model_.options().seed, RandomPurpose::dataset));
  micro_batch(batch, 0, batch_size * (accumulates ? 2 : 1));
  if (accumulates) micro_batch(batch, batch_size, batch_size * 2);
  discard();
  kernels::MetricSums kept;  // evaluation sums that were not read yet
  kernels::MetricSums* evaluation = ring_.as<kernels::MetricSums>() + kMetricRing;
  copy_bytes(&kept, evaluation, sizeof(kept), stream);
  evaluate(batch);
  copy_bytes(evaluation, &kept, sizeof(kept), stream);
  optimizer_.warm_up();
  synchronize(stream);
}

std::int64_t warm_up_what_fits(TrainingStep& step, std::int64_t batch, bool accumulates) {
  for (std::int64_t piece = batch;; piece = (piece + 1) / 2) {
    try {
      step.warm_up(piece, accumulates || piece < batch);
      return piece;
    } catch (const OutOfMemory&) {
      if (piece <= 1) return 0;
      Model& model = step.model();
      model.runtime().allocator(model.device()).trim();
    }
  }
}

}  // namespace bantam
