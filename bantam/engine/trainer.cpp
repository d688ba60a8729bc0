// The loop: micro-batches to updates, metrics read back now and then, evaluation, callbacks.
#include "bantam/engine/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void merge(Metrics& sum, const Metrics& part) {
  const double samples = static_cast<double>(sum.samples + part.samples);
  if (samples == 0) return;
  const double a = static_cast<double>(sum.samples) / samples, b = static_cast<double>(part.samples) / samples;
  sum = {sum.loss * a + part.loss * b, sum.accuracy * a + part.accuracy * b, sum.samples + part.samples};
}

/// Memory that a batch itself takes was refused: it is not made smaller by smaller micro-batches.
struct BatchDoesNotFit : OutOfMemory {
  explicit BatchDoesNotFit(const OutOfMemory& error)
      : OutOfMemory(
            fmt::format("{}\n  This is the batch itself, for which smaller micro-batches cannot help: lower the "
                        "batch\n  size and raise accumulate.",
                        error.what()),
            error.facts()) {}
};

}  // namespace

/// One epoch under way.
struct Trainer::EpochState {
  std::int64_t epoch = 0;
  std::int64_t updates = 0;  ///< in the whole epoch
  std::int64_t done = 0;
  Metrics sum;
  Clock::time_point start = Clock::now();
  Clock::time_point last_read = Clock::now();
  std::int64_t first_update = 0;  ///< where it began (resume)
};

Trainer::Trainer(TrainingStep& step, BatchSource& train, BatchSource* validation, TrainerOptions options)
    : step_(step), train_(train), validation_(validation), options_(options), micro_batches_(step) {
  if (options_.epochs < 0) throw ConfigError(fmt::format("train.epochs must not be negative, got {}", options_.epochs));
  if (options_.accumulate < 1)
    throw ConfigError(fmt::format("train.accumulate must be at least 1, got {}", options_.accumulate));
  if (train_.batches_per_epoch() < 1)
    throw DataError("the training data give no batch: fewer samples than the batch size, and drop_last");
  if (options_.max_skipped_in_a_row < 1)
    throw ConfigError(fmt::format("max_skipped_in_a_row must be at least 1, got {}", options_.max_skipped_in_a_row));
  check_on_oom(options_.on_oom, step_.model().graph());
  check_fits(train_, "training");
  if (validation_ != nullptr) check_fits(*validation_, "validation");
  options_.read_every = std::clamp<std::int64_t>(options_.read_every, 1, TrainingStep::kMetricRing);
}

void Trainer::check_fits(const BatchSource& source, const char* what) const {
  const Graph& graph = step_.model().graph();
  if (source.image_shape() != graph.input_shape())
    throw ShapeError(fmt::format("the {} data give images {}, the model takes {}", what,
                                 to_string(source.image_shape()), to_string(graph.input_shape())));
  if (Shape{source.classes()} != graph.output_shape())
    throw ShapeError(fmt::format("the {} data have {} classes, the model gives {}", what, source.classes(),
                                 to_string(graph.output_shape())));
}

StepShapes Trainer::shapes() const {
  const auto sizes = [](const BatchSource& source) {
    const std::int64_t batches = source.batches_per_epoch();
    return batches > 0 ? std::vector{source.size_of(0), source.size_of(batches - 1)} : std::vector<std::int64_t>();
  };
  StepShapes shapes{.batches = sizes(train_), .accumulates = options_.accumulate > 1};
  if (validation_ != nullptr && options_.evaluate) shapes.evaluation_batches = sizes(*validation_);
  return shapes;
}

TrainResult Trainer::run() {
  TrainResult result;
  if (options_.planned) step_.prepare(shapes());
  for (Callback* callback : callbacks_) callback->on_begin();
  double samples = 0, waited = 0;
  result.epoch = options_.first_epoch;
  result.update = options_.first_update;
  for (std::int64_t epoch = options_.first_epoch; epoch < options_.epochs && !result.stopped; ++epoch) {
    if (stop_.load(std::memory_order_relaxed)) {  // asked for between epochs: the last epoch's results stand
      result.stopped = true;
      break;
    }
    const double before = result.seconds;
    run_epoch(epoch, epoch == options_.first_epoch ? options_.first_update : 0, result);
    samples += static_cast<double>(result.train.samples);
    waited += result.data_wait_share * (result.seconds - before);
  }
  if (result.seconds > 0) {
    result.images_per_second = samples / result.seconds;
    result.data_wait_share = waited / result.seconds;
  }
  for (Callback* callback : callbacks_) callback->on_end();
  return result;
}

void Trainer::run_epoch(std::int64_t epoch, std::int64_t first_update, TrainResult& result) {
  EpochState state{.epoch = epoch,
                   .updates = (train_.batches_per_epoch() + options_.accumulate - 1) / options_.accumulate,
                   .done = first_update,
                   .first_update = first_update};
  waited_before_ = 0;
  train_.start(epoch, first_update * options_.accumulate);
  while (state.done < state.updates && !stop_.load(std::memory_order_relaxed)) {
    run_update(state);
    ++state.done;
    ++result.updates;
    const bool due =
        step_.pending_metrics() >= options_.read_every || seconds_since(state.last_read) >= options_.read_seconds;
    if (due || state.done == state.updates) read(state);
  }
  if (step_.pending_metrics() > 0) read(state);
  const double seconds = seconds_since(state.start);
  result.seconds += seconds;
  result.train = state.sum;
  result.data_wait_share = seconds > 0 ? waited_seconds() / seconds : 0;
  // An epoch that ends with skipped updates and a loss that is no number has diverged, however short it was.
  if (!std::isfinite(state.sum.loss) && step_.optimizer().control().skipped_in_a_row > 0)
    throw NotFiniteError(
        fmt::format("the training loss of epoch {} is not finite; lower the learning rate, or clip", epoch + 1));
  result.stopped = state.done < state.updates;
  result.epoch = result.stopped ? epoch : epoch + 1;
  result.update = result.stopped ? state.done : 0;
  if (result.stopped) return;
  ++result.epochs;
  const Clock::time_point evaluation = Clock::now();
  if (validation_ != nullptr && options_.evaluate) result.validation = evaluate(*validation_);
  const EpochEvent event{.epoch = epoch,
                         .epochs = options_.epochs,
                         .train = state.sum,
                         .validation = result.validation,
                         .seconds = seconds,
                         .evaluation_seconds = seconds_since(evaluation),
                         .images_per_second = static_cast<double>(state.sum.samples) / std::max(seconds, 1e-9),
                         .data_wait_share = result.data_wait_share,
                         .last = epoch + 1 == options_.epochs};
  for (Callback* callback : callbacks_) callback->on_epoch_end(event);
}

void Trainer::run_update(const EpochState& state) {
  for (;;) {
    try {
      run_micro_batches(state.done * options_.accumulate);
      break;
    } catch (const BatchDoesNotFit&) {
      throw;
    } catch (const OutOfMemory& error) {
      if (!go_on_smaller(state, error)) throw;
    }
    waited_before_ += train_.waited_seconds();
    train_.start(state.epoch, state.done * options_.accumulate);
  }
  step_.update();
}

/// After a failed update, of which nothing stays: halves the micro-batch where that is wanted and possible.
bool Trainer::go_on_smaller(const EpochState& state, const OutOfMemory& error) {
  if (options_.on_oom == OnOutOfMemory::fail) return false;
  step_.discard();  // also where the source failed between micro-batches
  if (!micro_batches_.halve(train_.batch_size())) return false;
  const SmallerMicroBatchEvent event{
      .epoch = state.epoch, .update = state.done, .samples = micro_batches_.most(), .reason = error.what()};
  for (Callback* callback : callbacks_) callback->on_smaller_micro_batch(event);
  return true;
}

/// Where memory ends, it is told apart whether the step was in the way (a batch may be made while it runs) or whether
/// there is no room for the batch with nothing of the step alive.
Batch Trainer::next_batch(const Context& context, std::int64_t index) {
  Batch batch;
  try {
    if (!train_.next(context, batch))
      throw DataError(fmt::format("the data source ended before batch {} of its epoch", index));
  } catch (const OutOfMemory& error) {
    if (options_.on_oom == OnOutOfMemory::fail) throw;
    step_.discard();
    const MemoryStats memory = step_.model().runtime().allocator(step_.model().device()).stats();
    if (memory.limit_bytes > 0 && memory.in_use_bytes + error.facts().requested_bytes > memory.limit_bytes)
      throw BatchDoesNotFit(error);
    throw;
  }
  return batch;
}

void Trainer::run_micro_batches(std::int64_t first_batch) {
  const std::int64_t end = std::min(first_batch + options_.accumulate, train_.batches_per_epoch());
  std::int64_t effective = 0;
  for (std::int64_t batch = first_batch; batch < end; ++batch) effective += train_.size_of(batch);
  const Context context = step_.model().context(Pass::train).at(step_.model().runtime().intern("input"));
  std::int64_t first_sample = 0;
  for (std::int64_t index = first_batch; index < end; ++index) {
    const Batch batch = next_batch(context, index);
    micro_batches_.train(batch, first_sample, effective);
    first_sample += batch.size;
  }
}

void Trainer::read(EpochState& state) {
  ProgressEvent event{.epoch = state.epoch, .epochs = options_.epochs, .update = state.done, .updates = state.updates};
  event.metrics = step_.read_metrics();
  std::int64_t samples = 0;
  for (const Metrics& metrics : event.metrics) {
    merge(state.sum, metrics);
    samples += metrics.samples;
  }
  check_finite();
  const double seconds = std::max(seconds_since(state.last_read), 1e-9),
               epoch_seconds = std::max(seconds_since(state.start), 1e-9);
  state.last_read = Clock::now();
  event.images_per_second = static_cast<double>(samples) / seconds;
  event.epoch_loss = state.sum.loss;
  event.epoch_accuracy = state.sum.accuracy;
  event.data_wait_share = waited_seconds() / epoch_seconds;
  const double updates_left =
      static_cast<double>(state.updates - state.done) +
      static_cast<double>(state.updates) * static_cast<double>(options_.epochs - state.epoch - 1);
  const double measured = static_cast<double>(state.done - state.first_update);
  event.eta_seconds = measured > 0 ? epoch_seconds / measured * updates_left : 0;
  for (Callback* callback : callbacks_) callback->on_progress(event);
}

void Trainer::check_finite() {
  const kernels::UpdateControl control = step_.optimizer().control();
  if (control.skipped_in_a_row < options_.max_skipped_in_a_row) return;
  throw NotFiniteError(
      fmt::format("gradients were not finite in the last {} updates (loss scale {}); lower the learning rate, or clip",
                  control.skipped_in_a_row, control.loss_scale));
}

Metrics Trainer::evaluate(BatchSource& source) {
  const Context context = step_.model().context(Pass::evaluate).at(step_.model().runtime().intern("input"));
  source.start(0, 0);
  Batch batch;
  while (source.next(context, batch)) micro_batches_.evaluate(batch, options_.on_oom != OnOutOfMemory::fail);
  batch = {};
  return step_.read_evaluation();
}

}  // namespace bantam
