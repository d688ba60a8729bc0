// StepSession: training steps of a configuration on random batches that lie on the device.
#pragma once

#include <cstdint>
#include <memory>

#include "bantam/engine/train/captured_steps.h"
#include "bantam/run/bench/resident_batches.h"
#include "bantam/run/config/step_case.h"

namespace bantam::run {

/// A fresh runtime, model, optimizer and step on one device, with one resident batch of random images. Keeps all alive.
/// Planned steps, captured ones too, have their pool reserved first.
class StepSession {
 public:
  /// Throws OutOfMemory where it does not fit. `trace` records the device's allocator from its first call on, until it
  /// is detached; it must live as long as the session. `ranks`: of a configuration of one rank of several, whose
  /// sessions then make the same calls.
  StepSession(const RunConfig& config, const StepCase& options, Device device, int threads,
              AllocationTrace* trace = nullptr, Communicator* ranks = nullptr);
  ~StepSession();

  /// Runs `count` steps, each over the configuration's batches an update, going round the resident batches; captured
  /// ones in whole launches, so that there may be more. Returns how many. Waits for nothing but full metric rings and,
  /// captured, for a few launches before.
  std::int64_t run(std::int64_t count);
  /// One update over `accumulate` of them for each replica.
  void update(std::int64_t accumulate);
  /// Runs one more step, and all later ones in launches that go round the resident batches, which are all there now.
  void start_capturing();
  /// Returns how many steps `run` runs at once.
  std::int64_t steps_a_launch() const { return captured_ ? captured_->updates_a_launch() : 1; }
  /// Kernels of a captured step; 0 otherwise.
  double kernels_a_step() const { return captured_ ? captured_->kernels_an_update() : 0.0; }
  /// Adds resident batches until there are `count`, or memory beside the step's own ends.
  void add_batches(std::int64_t count);
  /// Removes batches but for so many.
  void keep_batches(std::int64_t count);
  std::int64_t batches() const { return batches_.size(); }
  void wait() const;
  MemoryStats memory() const;
  /// The context of a training forward; the caller sets its tape.
  Context training_context() const;
  Runtime& runtime() const { return *runtime_; }
  Model& model() const { return session_->model(); }
  TrainingStep& step() const { return session_->step(); }
  const Batch& batch() const { return batches_.front(); }

 private:
  Batch make_batch(std::int64_t index) const;
  void make_room_for_metrics(std::int64_t updates);
  std::int64_t run_launch(std::int64_t updates);

  std::unique_ptr<Runtime> runtime_;
  StepCase case_;
  std::int64_t accumulate_;
  std::unique_ptr<TrainingSession> session_;  // made once its pool is reserved
  ResidentBatches batches_;
  std::unique_ptr<CapturedSteps> captured_;
};

}  // namespace bantam::run
