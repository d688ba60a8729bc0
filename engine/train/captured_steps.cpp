// Which updates run from a recording, when recordings are made, and what happens where they cannot be made.
#include "bantam/engine/train/captured_steps.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/step/captured_updates.h"

namespace bantam {
namespace {

/// Runs once all that updates will run, on the first batches, and forgets it: the device has loaded kernels and
/// libraries then, and libraries have chosen. False where there is no memory for it; the first update will say so. Of
/// several ranks, where another may not get so far, nothing is exchanged (TrainingStep::warm_up).
bool warm_up(TrainingStep& step, DeviceBatches& batches, std::int64_t accumulate) {
  const Context context = step.model().context(Pass::train).at(step.model().runtime().intern("input"));
  try {
    if (step.replicas().dealt.size() > 1) {
      std::int64_t size = 0;
      for (std::int64_t i = 0; i < accumulate; ++i) size = batches.make(context, i, accumulate).size;
      step.warm_up(size, accumulate > step.replicas().count());
      return true;
    }
    MicroBatches(step).accumulate(accumulate, 0, [&](std::int64_t i) { return batches.make(context, i, accumulate); });
    step.end_replicas(false);
    step.discard();
    step.optimizer().warm_up();
  } catch (const OutOfMemory&) {
    step.discard();
    return false;
  }
  return true;
}

}  // namespace

CapturedSteps::CapturedSteps(TrainingStep& step, DeviceBatches& batches, std::int64_t accumulate, StepMode mode,
                             int updates_a_launch)
    : step_(step),
      batches_(batches),
      micro_batches_(step),
      accumulate_(accumulate),
      updates_(updates_a_launch),
      wanted_(mode == StepMode::captured && step.model().device().is_cuda()),
      captures_(wanted_) {
  if (updates_ <= 0) updates_ = most_updates(batches, accumulate);
  if (updates_ > kMostUpdates)
    throw Error(fmt::format("{} updates a launch; at most {} can be", updates_, kMostUpdates));
  const std::string without_meta = step.without_meta();
  if (wanted_ && !without_meta.empty()) {
    wanted_ = false;
    fall_back(Error(without_meta));
  }
  for (int i = 0; i < kAhead; ++i) launched_.emplace_back(step.model().device());
  if (step.model().device().kind != DeviceKind::cuda || mode != StepMode::captured) return;
  if (!without_meta.empty()) return;        // nothing is recorded, so there is nothing to warm up for
  if (batches.left() < accumulate) return;  // nothing to warm up with: the first update does it
  warm_ = warm_up(step, batches, accumulate);
  if (warm_ && captures_) (void)(record(many_, updates_) && updates_ > 1 && record(one_, 1));
}

double CapturedSteps::kernels_an_update() const {
  if (many_) return static_cast<double>(many_->work.kernels()) / many_->updates;
  return one_ ? static_cast<double>(one_->work.kernels()) : 0.0;
}

std::int64_t CapturedSteps::next_updates(std::int64_t most) const {
  return captures_ && warm_ && most >= updates_ ? updates_ : 1;
}

int CapturedSteps::most_updates(const DeviceBatches& batches, std::int64_t accumulate) {
  return static_cast<int>(std::clamp<std::int64_t>(batches.most_at_once() / accumulate, 1, kMostUpdates));
}

std::int64_t CapturedSteps::run(std::int64_t most) {
  const std::int64_t count = next_updates(most);
  if (replay(count)) return count;
  run_once();
  return 1;
}

bool CapturedSteps::replay(std::int64_t count) {
  hold_back();
  if (!captures_ || !warm_) return false;
  std::unique_ptr<CapturedUpdates>& recorded = count == updates_ ? many_ : one_;
  if (!recorded && !record(recorded, static_cast<int>(count))) return false;
  if (!step_.replay(*recorded)) {
    drop();  // the arena is not where it was
    return false;
  }
  recordings_ = 0;
  batches_.advance(count * accumulate_);
  note_launch();
  return true;
}

void CapturedSteps::run_once() {
  hold_back();
  run_directly();
  note_launch();
}

void CapturedSteps::note_launch() {
  launched_[launches_++ % kAhead].record(step_.model().runtime().stream(step_.model().device()));
}

/// Waits for the launch before the last kAhead - 1.
void CapturedSteps::hold_back() { launched_[launches_ % kAhead].synchronize(); }

/// Micro-batches and update number `first` of `count` batches that are made together. Batches are of one size, on the
/// ranks before this one too.
void CapturedSteps::update_once(const Context& context, std::int64_t first, std::int64_t count, bool recording) {
  Batch begin = batches_.make(context, first, count);
  const auto next = [&](std::int64_t i) {
    Batch batch = i == 0 ? std::exchange(begin, {}) : batches_.make(context, first + i, count);
    if (recording && micro_batches_.copies(batch))
      throw Error(fmt::format("micro-batches of {} samples are copied", micro_batches_.most()));
    return batch;
  };
  const ReplicaOptions& replicas = step_.replicas();
  const std::int64_t own_place = replicas.first() * (accumulate_ / replicas.count()) * begin.size;
  micro_batches_.accumulate(accumulate_, 0, next, own_place);
  step_.update();
}

void CapturedSteps::run_directly() {
  const Context context = step_.model().context(Pass::train).at(step_.model().runtime().intern("input"));
  update_once(context, 0, accumulate_);
  batches_.advance(accumulate_);
  warm_ = true;
}

bool CapturedSteps::record(std::unique_ptr<CapturedUpdates>& into, int updates) {
  Runtime& runtime = step_.model().runtime();
  const Device device = step_.model().device();
  const Context context = step_.model().context(Pass::train).at(runtime.intern("input"));
  try {
    if (++recordings_ > kMostFailures) throw Error("memory is too short for the planned step to stay where it is");
    runtime.refresh_limit(device);  // what came before is not the graph's
    into = step_.capture([&] {
      for (int i = 0; i < updates; ++i) update_once(context, i * accumulate_, updates * accumulate_, true);
    });
    runtime.note_overhead(device, "graphs");
  } catch (const Error& error) {
    fall_back(error);
  }
  return into != nullptr;
}

void CapturedSteps::split(std::int64_t most) {
  micro_batches_.split(most);
  drop();
  warm_ = false;
  captures_ = wanted_;  // it may have been given up for lack of memory that smaller micro-batches do not need
  recordings_ = 0;
}

void CapturedSteps::drop() {
  many_.reset();
  one_.reset();
}

void CapturedSteps::fall_back(const Error& error) {
  captures_ = false;
  drop();
  step_.model().runtime().log(fmt::format("steps run planned, not captured: {}", error.what()));
}

}  // namespace bantam
