// The updates of an epoch: several a launch where the device makes their batches, else one by one, and in smaller
// pieces where memory ends.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/trainer.h"

namespace bantam {
namespace {

/// Memory that a batch itself takes was refused: it is not made smaller by smaller micro-batches.
struct BatchDoesNotFit : OutOfMemory {
  explicit BatchDoesNotFit(const OutOfMemory& error)
      : OutOfMemory(
            fmt::format("{}\n  This is the batch itself, for which smaller micro-batches cannot help: lower the batch "
                        "size and raise accumulate.",
                        error.what()),
            error.facts()) {}
};

}  // namespace

void Trainer::open_device_batches() {
  const Context context = step_.model().context(Pass::train).at(step_.model().runtime().intern("input"));
  device_batches_ = train_.device_batches(context);
  if (device_batches_ == nullptr) return;
  launches_ = std::make_unique<CapturedSteps>(step_, *device_batches_, options_.accumulate, options_.mode,
                                              options_.updates_a_launch);
  if (micro_batches_.most() > 0) launches_->split(micro_batches_.most());
}

/// Runs one or more updates and returns how many: 0 after one that goes on smaller, or that a stop has interrupted.
std::int64_t Trainer::run_updates(const EpochState& state) {
  std::int64_t most = 0;
  if (launches_)
    most = std::min({state.updates - state.done, device_batches_->left() / options_.accumulate,
                     options_.read_every - step_.pending_metrics()});
  if (most <= 0) return run_update(state);
  set_rates(state, launches_->next_updates(most));
  try {
    const std::int64_t done = launches_->run(most);
    tell_smaller();
    return done;
  } catch (const OutOfMemory& error) {
    if (!go_on_smaller(state, error)) throw;
  }
  train_.start(state.epoch, state.done * options_.accumulate);
  return 0;
}

void Trainer::set_rates(const EpochState& state, std::int64_t updates) {
  if (!options_.learning_rate) return;
  std::vector<float> rates;
  for (std::int64_t i = 0; i < updates; ++i)
    rates.push_back(options_.learning_rate(state.epoch * state.updates + state.done + i));
  step_.optimizer().set_learning_rates(rates);
}

std::int64_t Trainer::run_update(const EpochState& state) {
  set_rates(state, 1);
  for (;;) {
    try {
      const bool whole = run_micro_batches(state.done * options_.accumulate);
      if (whole) step_.update();
      tell_smaller();
      return whole ? 1 : 0;
    } catch (const BatchDoesNotFit&) {
      tell_smaller();
      throw;
    } catch (const OutOfMemory& error) {
      if (!go_on_smaller(state, error)) throw;
    }
    waited_before_ += train_.waited_seconds();
    train_.start(state.epoch, state.done * options_.accumulate);
  }
}

/// After a failed update, of which nothing stays: halves the micro-batch where that is wanted and possible.
bool Trainer::go_on_smaller(const EpochState& state, const OutOfMemory& error) {
  if (options_.on_oom == OnOutOfMemory::fail) return false;
  step_.discard();  // also where the source failed between micro-batches
  if (!micro_batches_.halve(train_.batch_size())) {
    tell_smaller();
    return false;
  }
  if (launches_) launches_->split(micro_batches_.most());
  if (!smaller_) smaller_ = {.epoch = state.epoch, .update = state.done, .reason = error.what()};
  smaller_->samples = micro_batches_.most();
  return true;
}

void Trainer::tell_smaller() {
  if (!smaller_) return;
  const SmallerMicroBatchEvent event = *std::exchange(smaller_, std::nullopt);
  for (Callback* callback : callbacks_) callback->on_smaller_micro_batch(event);
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

/// False where a stop came between two of them: nothing of the update stays.
bool Trainer::run_micro_batches(std::int64_t first_batch) {
  const std::int64_t end = std::min(first_batch + options_.accumulate, train_.batches_per_epoch());
  std::int64_t effective = 0;
  for (std::int64_t batch = first_batch; batch < end; ++batch) effective += train_.size_of(batch);
  const Context context = step_.model().context(Pass::train).at(step_.model().runtime().intern("input"));
  std::int64_t first_sample = 0;
  for (std::int64_t index = first_batch; index < end; ++index) {
    if (index > first_batch && stop_requested()) {
      step_.discard();
      return false;
    }
    const Batch batch = next_batch(context, index);
    micro_batches_.train(batch, first_sample, effective);
    first_sample += batch.size;
  }
  return true;
}

}  // namespace bantam
