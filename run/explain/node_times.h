// A training step's time by layer: each instant of it belongs to the layer and phase whose kernel ran, or to a gap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/run/explain/step_recording.h"

namespace bantam::run {

/// Time of one owner in one phase of an update.
struct NodeTime {
  std::string owner;  ///< layer path, "loss", "optimizer" …
  kernels::KernelPhase phase = kernels::KernelPhase::forward;
  double seconds = 0;
};

/// A partition of an update's time, the mean of several updates (StepRecording::typical_updates).
struct StepTimes {
  std::vector<NodeTime> nodes;  ///< in order of their first kernels
  double between_kernels = 0;   ///< seconds in which no kernel ran, within an update (GPU)
  double between_updates = 0;   ///< and from one update's last kernel to the next one's first
  double step_seconds = 0;      ///< all of it: nodes and gaps add up to this
  double untraced_seconds = 0;  ///< an update's without recording: the difference is the cost of recording
  std::int64_t updates = 0;     ///< recorded
  RecordingMethod method = RecordingMethod::host_clock;
  std::string why_not_traced;  ///< the reason why the driver did not trace
};

/// A recording, added up by owner and phase.
StepTimes add_up(const StepRecording& recording);

/// Records updates (record_updates, whose conditions and errors are these) and adds them up.
StepTimes measure_node_times(TrainingStep& step, const Batch& batch, std::int64_t accumulate);

}  // namespace bantam::run
