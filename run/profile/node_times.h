// A training step's time by layer: each instant of it belongs to the layer and phase whose kernel ran, or to a gap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/contracts/kernel_log.h"

namespace bantam::run {

/// Time of one owner in one phase of an update.
struct NodeTime {
  std::string owner;  ///< layer path, "loss", "optimizer" …
  kernels::KernelPhase phase = kernels::KernelPhase::forward;
  double seconds = 0;
};

/// A partition of an update's time, the mean of several updates.
struct StepTimes {
  std::vector<NodeTime> nodes;  ///< in order of their first kernels
  double between_kernels = 0;   ///< seconds in which nothing ran on the GPU, within an update
  double between_updates = 0;   ///< and from one update's last kernel to the next one's first
  double step_seconds = 0;      ///< all of it: nodes and gaps add up to this
  double untraced_seconds = 0;  ///< of an untraced update: the difference is the cost of tracing
  std::int64_t updates = 0;     ///< measured
};

/// Runs updates of `accumulate` micro-batches over `batch` (resident on the step's device) and measures them. On a GPU
/// the update is captured and its kernels are timed by the driver's own trace (activity_trace.h); throws DeviceError
/// where there is none, and Error where the update cannot be captured. On the CPU each kernel call begins the time of
/// its owner, with what the host does after it. `step` must be prepared (TrainingStep::prepare); weights change.
StepTimes measure_node_times(TrainingStep& step, const Batch& batch, std::int64_t accumulate);

}  // namespace bantam::run
