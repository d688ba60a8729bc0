// CapturedSteps: runs updates over batches of the device, several a launch, each launch one CUDA graph.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bantam/engine/step/captured_updates.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/device_batches.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// Whole updates without the host: batches, learning rates, loss scale, counters and metric sums are on the device.
///
/// When it is made, the device loads what updates need, and two launches are recorded: of `updates_a_launch` updates,
/// and of one, for what is left over; where no update's batches are left, after the first update instead. Where the
/// arena has moved in between (memory was short, or released), they are recorded again. Where recording fails (a
/// layer of the program's own that waits for the device, say), updates run planned from then on, and the runtime's log
/// says why. So they do, with nothing recorded, where a layer does not support meta devices (Layer::supports_meta): it
/// may do work on the host that a recording would not contain. Results are the same bits in all cases. On devices that
/// are not CUDA's updates run planned. Used by one thread.
///
/// In a run of several ranks each has its own: `accumulate` counts its replicas' batches, and a launch must have
/// as many updates on every rank, since updates exchange sums. `replay` and `run_once` are for that: what one rank
/// cannot replay, it runs one by one.
class CapturedSteps {
 public:
  static constexpr int kMostUpdates = Optimizer::kMostRates;

  /// Updates of `accumulate` micro-batches, those of all replicas of this rank, one batch each. `updates_a_launch` 0:
  /// as many as the batches allow. Step and batches must outlive it. In another mode than captured all updates run one
  /// by one, planned where the step is. Batches may have been made and dropped: the source of batches must be
  /// restarted. Weights, state and metrics stay.
  CapturedSteps(TrainingStep& step, DeviceBatches& batches, std::int64_t accumulate, StepMode mode = StepMode::captured,
                int updates_a_launch = 0);

  /// Runs at least one and at most `most` updates (which the batches must have left, and the metric ring room for), and
  /// returns how many. Update i uses the optimizer's learning rate i. The host waits where it is more than a few
  /// launches ahead of the device. Where it throws OutOfMemory, the update has not run.
  std::int64_t run(std::int64_t most);
  /// Runs `count` updates (updates_a_launch, or one) by a recording of them, made where there is none. False, with
  /// nothing run, where that cannot be now. Otherwise as `run`.
  bool replay(std::int64_t count);
  /// Runs one update directly, with the optimizer's first learning rate. Otherwise as `run`.
  void run_once();
  /// Most that `run` does: how many learning rates to set.
  std::int64_t next_updates(std::int64_t most) const;
  /// Micro-batches have at most `most` samples from now on (MicroBatches). The next update runs directly, later ones
  /// from new recordings; micro-batches that have to be copied are not recorded.
  void split(std::int64_t most);

  int updates_a_launch() const { return updates_; }
  /// Those that the batches allow.
  static int most_updates(const DeviceBatches& batches, std::int64_t accumulate);
  /// Kernels of one captured update; 0 before one has run.
  double kernels_an_update() const;

 private:
  static constexpr int kAhead = 3;          // launches that the host may be ahead
  static constexpr int kMostFailures = 16;  // recordings in a row that were of no more use when they were needed

  void run_directly();
  void update_once(const Context& context, std::int64_t first, std::int64_t count, bool recording = false);
  bool record(std::unique_ptr<CapturedUpdates>& into, int updates);
  void drop();
  void fall_back(const Error& error);
  void hold_back();
  void note_launch();

  TrainingStep& step_;
  DeviceBatches& batches_;
  MicroBatches micro_batches_;
  std::int64_t accumulate_;
  int updates_;
  bool wanted_;         // the mode says so, and the device can
  bool captures_;       // false: all run directly
  bool warm_ = false;   // all that updates run has run
  int recordings_ = 0;  // made since one was replayed
  std::unique_ptr<CapturedUpdates> many_, one_;
  std::vector<Event> launched_;  // of the last launches, round robin
  std::size_t launches_ = 0;
};

}  // namespace bantam
