// run::profile_step: where a training step's time goes, by operation, kernel, gap and thread, beside what the device
// allows, and in a sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/run/bench/step_limits.h"
#include "bantam/run/explain/explain.h"
#include "bantam/run/explain/step_recording.h"
#include "bantam/run/profile/step_advice.h"

namespace bantam::run {

struct StepProfileOptions {
  std::int64_t first_step = 4, last_step = 13;  ///< those recorded; the ones before are run
  int threads = 0;
  double try_seconds = 0;  ///< each change is measured for so long (try_changes); 0: predicted only
};

/// Work of an update and the time that it needed: the mean of the typical updates.
struct TimedWork {
  double seconds = 0;
  double calls = 0;
  double bytes = 0;  ///< of device memory, read plus written
  double flops = 0;  ///< of convolutions and matrix products

  void add(const TimedWork& other);
  /// The least time that the rates allow: bytes over the copy rate or operations over the product rate, the longer.
  double floor_seconds(const MeasuredRates& rates) const;
};

/// One kernel of one operation in one phase. Kernels that run one call share its bytes and operations by their times.
struct ProfiledKernel {
  std::string operation;  ///< of ProfiledNode; "": of none
  kernels::KernelPhase phase = kernels::KernelPhase::forward;
  std::string kernel;         ///< its contract's name
  std::string device_kernel;  ///< readable, without namespaces and arguments; "" where the driver did not trace
  TimedWork work;
};

/// One operation of the step program, the loss, or the optimizer.
struct ProfiledNode {
  std::string name, runs;  ///< as ExplainedNode
  std::vector<TimedWork> by_phase = std::vector<TimedWork>(kernels::kKernelPhases);
  double predicted_seconds = 0;

  TimedWork total() const;
};

/// Time in which no kernel ran, between two operations; the mean of an update.
struct ProfiledGap {
  std::string after, before;  ///< operations; "" before the first and after the last of an update
  double seconds = 0;
  bool between_updates() const { return after.empty() || before.empty(); }
};

/// The work of a thread of the CPU's pool in the updates.
struct ProfiledThread {
  int thread = 0;  ///< 0 calls the kernels
  double busy_share = 0;
};

/// Operations of one kind in one stage of the network, for the sentence.
struct ProfiledGroup {
  std::string runs, stage;  ///< stage: "" where the names have none
  int operations = 0;
  TimedWork work;
};

struct StepProfile {
  std::string model;
  StepCase step;
  Device device;
  std::int64_t accumulate = 1;
  StepProfileOptions options;
  StepRecording recording;
  std::vector<ProfiledNode> nodes;      ///< in the program's order
  std::vector<ProfiledKernel> kernels;  ///< longest first
  std::vector<ProfiledGap> gaps;        ///< longest first
  std::vector<ProfiledThread> threads;  ///< the CPU, where kernels used several
  double step_seconds = 0;              ///< nodes and gaps add up to it
  double gap_seconds = 0;
  std::optional<MeasuredRates> rates;  ///< measured in the same call; nullopt: no memory for it
  std::vector<StepChange> changes;     ///< least time first
  std::string headline;

  /// Sums the least possible time of each operation, by the measured rates; 0 without them.
  double floor_seconds() const;
  /// The longest: operations of one kind in one stage.
  ProfiledGroup largest_group() const;
};

/// Records steps of the configuration on its device, with random images that lie there, and measures the device's
/// rates. Throws what StepSession and record_updates throw.
StepProfile profile_step(const RunConfig& config, const StepCase& step, const StepProfileOptions& options);

/// The profile of updates that were recorded; `rates`, `changes` and `headline` are left empty.
StepProfile summarize(const Explanation& explanation, StepRecording recording);

/// "38 % of a step is batch_norm in stage1 (6 operations), at 71 % of what the device's rates allow; …"
std::string step_headline(const StepProfile& profile);

/// "void bantam::kernels::cuda::(anonymous namespace)::rows<float, 4>(float*)" or its mangled form → "rows<float, 4>".
std::string readable_kernel(const std::string& name);

}  // namespace bantam::run
