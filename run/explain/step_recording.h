// StepRecording: some updates of a training step, each divided into the kernels that ran and the gaps between them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/part_recorder.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/common/kernel_log.h"

namespace bantam::run {

/// Whose clock the times are of.
enum class RecordingMethod : std::uint8_t {
  driver_trace,  ///< CUDA: the driver's trace of captured updates (CUPTI): each kernel, copy and memset
  /// CUDA: events between the kernel calls of planned updates. A call's time ends where the next one's begins, so waits
  /// for the host are in it.
  device_events,
  host_clock  ///< the CPU: the host's clock between kernel calls; a call's time includes what the host does after it
};
std::string_view to_string(RecordingMethod method);

/// A time in which one kernel of the step ran.
struct StepSlice {
  std::string owner;  ///< layer path, "loss", "optimizer"; "": of no kernel call
  kernels::KernelPhase phase = kernels::KernelPhase::forward;
  std::string kernel;         ///< its contract's name: "conv2d_forward"
  std::string device_kernel;  ///< driver_trace: the kernel's own (mangled) name, "copy" or "memset"; else ""
  kernels::KernelWork work;   ///< the call's work, on its first slice only
  bool begins_call = true;    ///< false: a further kernel of the call before
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// One update. Slices are in order, do not overlap, and lie within it; an instant in none of them is a gap.
struct RecordedUpdate {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<StepSlice> slices;
};

struct StepRecording {
  RecordingMethod method = RecordingMethod::host_clock;
  std::string why_not_traced;  ///< device_events: why there is no driver_trace
  /// One after another: each begins where the one before ends, the first at 0.
  std::vector<RecordedUpdate> updates;
  /// The CPU: what the pool's threads did, on the updates' clock. The calling thread works where it does not wait.
  std::vector<PartSpan> threads;
  int updates_a_launch = 1;  ///< driver_trace: of the graph that was launched
  /// Seconds of an update that was not recorded, run beside the others: the difference is the cost of recording.
  double plain_seconds = 0;
  double trace_cost_seconds = 0;  ///< driver_trace: what tracing added to an update; taken off (take_off_trace_cost)

  /// The updates that figures are means of: of the driver's trace all; elsewhere the faster half, as of the plain ones,
  /// since what else runs on the machine only adds time.
  std::vector<const RecordedUpdate*> typical_updates() const;
};

struct RecordingOptions {
  std::int64_t accumulate = 1;  ///< micro-batches an update, of each replica
  int warm_ups = 3;             ///< updates before the recorded ones; at least 1 is run
  int updates = 10;             ///< recorded
  bool driver_trace = true;     ///< false: by events even where the driver can trace
};

/// Most updates of RecordingOptions, both kinds together.
inline constexpr int kMostRecordedUpdates = 200;

/// Runs updates over `batch`, which is resident on the step's device. On a GPU they are captured, as many a launch as
/// training would launch, and traced by the driver; where that cannot be (no CUPTI, a step that cannot be captured)
/// they run planned, between events. `step` must be prepared (TrainingStep::prepare); weights change. Throws Error
/// where the step's arena moved meanwhile, and what the step throws.
StepRecording record_updates(TrainingStep& step, const Batch& batch, const RecordingOptions& options);

}  // namespace bantam::run
