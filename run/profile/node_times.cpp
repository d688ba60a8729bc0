// On a GPU: the n-th activity of a replay is the n-th that was captured, whose owner the kernel log knows.
#include "bantam/run/profile/node_times.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/step/captured_updates.h"
#include "bantam/memory/device/activity_trace.h"

namespace bantam::run {
namespace {

using kernels::KernelEntry;
using kernels::KernelLog;
using kernels::KernelPhase;

constexpr int kWarmUps = 3, kUpdates = 10;

/// Attaches a log to a device for a scope.
class LogScope {
 public:
  LogScope(Runtime& runtime, Device device, KernelLog& log) : runtime_(runtime), device_(device) {
    runtime_.set_kernel_log(device_, &log);
  }
  ~LogScope() { runtime_.set_kernel_log(device_, nullptr); }
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  Runtime& runtime_;
  Device device_;
};

/// Adds up time by owner and phase.
class Owners {
 public:
  void add(const char* owner, KernelPhase phase, double seconds) {
    const auto [place, is_new] = places_.try_emplace({owner, phase}, nodes_.size());
    if (is_new) nodes_.push_back({owner, phase, 0});
    nodes_[place->second].seconds += seconds;
  }
  std::vector<NodeTime> mean(int updates) && {
    for (NodeTime& node : nodes_) node.seconds /= updates;
    return std::move(nodes_);
  }

 private:
  std::map<std::pair<std::string, KernelPhase>, std::size_t> places_;
  std::vector<NodeTime> nodes_;
};

void run_update(TrainingStep& step, const Batch& batch, std::int64_t accumulate) {
  MicroBatches(step).accumulate(accumulate, 0, [&](std::int64_t) { return batch; });
  step.update();
}

/// Seconds of an update, of `count` run by `run`.
template <class Run>
double seconds_an_update(Stream stream, int count, Run&& run) {
  synchronize(stream);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) run();
  synchronize(stream);
  return seconds_since(start) / count;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// On the CPU kernels are done when their call returns: an owner's time ends where the next one's begins.
StepTimes measure_on_cpu(TrainingStep& step, const Batch& batch, std::int64_t accumulate) {
  Runtime& runtime = step.model().runtime();
  const Device device = step.model().device();
  StepTimes times{.updates = kUpdates};
  Owners owners;
  for (int i = 0; i < kUpdates; ++i) {
    times.untraced_seconds +=
        seconds_an_update(runtime.stream(device), 1, [&] { run_update(step, batch, accumulate); }) / kUpdates;
    KernelLog log;
    log.set_clock(now_ns);
    const std::int64_t begin = now_ns();
    {
      const LogScope scope(runtime, device, log);
      run_update(step, batch, accumulate);
    }
    const std::int64_t end = now_ns();
    const std::vector<KernelEntry>& calls = log.entries();
    times.between_updates += 1e-9 * static_cast<double>((calls.empty() ? end : calls.front().at) - begin) / kUpdates;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const std::int64_t until = c + 1 < calls.size() ? calls[c + 1].at : end;
      owners.add(calls[c].owner, calls[c].phase, 1e-9 * static_cast<double>(until - calls[c].at));
    }
    times.step_seconds += 1e-9 * static_cast<double>(end - begin) / kUpdates;
    (void)step.read_metrics();
  }
  times.nodes = std::move(owners).mean(kUpdates);
  return times;
}

/// An update that was captured, and who owns each of its activities.
struct LoggedCapture {
  std::unique_ptr<CapturedUpdates> update;
  KernelLog log;                          // entries' `at`: activities captured before the call
  std::vector<const KernelEntry*> owner;  // by activity; null: of no kernel call
};

void capture(TrainingStep& step, const Batch& batch, std::int64_t accumulate, LoggedCapture& into) {
  Runtime& runtime = step.model().runtime();
  const Device device = step.model().device();
  const Stream stream = runtime.stream(device);
  std::int64_t activities = 0;
  into.log.set_clock([stream] { return captured_activities(stream); });
  const LogScope scope(runtime, device, into.log);
  into.update = step.capture([&] {
    run_update(step, batch, accumulate);
    activities = captured_activities(stream);
  });
  into.owner.resize(static_cast<std::size_t>(activities));
  for (const KernelEntry& call : into.log.entries())  // in order: later calls own what follows them
    std::fill(into.owner.begin() + static_cast<std::ptrdiff_t>(call.at), into.owner.end(), &call);
}

/// Divides the time of one replay, from its first activity to `end` (the next one's first), among owners and gaps.
/// Where two overlap (a kernel that was launched early), the one that began first owns the instant.
void divide(std::span<const DeviceActivity> replay, std::int64_t end, const LoggedCapture& captured, Owners& owners,
            StepTimes& times) {
  std::int64_t covered = replay.front().begin_ns;
  for (std::size_t i = 0; i < replay.size(); ++i) {
    const DeviceActivity& activity = replay[i];
    times.between_kernels += 1e-9 * static_cast<double>(std::max<std::int64_t>(0, activity.begin_ns - covered));
    const std::int64_t from = std::max(covered, activity.begin_ns), until = std::max(from, activity.end_ns);
    const KernelEntry* owner = captured.owner[i];
    const double seconds = 1e-9 * static_cast<double>(until - from);
    if (owner != nullptr)
      owners.add(owner->owner, owner->phase, seconds);
    else
      owners.add("", KernelPhase::input, seconds);
    covered = std::max(covered, until);
  }
  times.between_updates += 1e-9 * static_cast<double>(std::max<std::int64_t>(0, end - covered));
  times.step_seconds += 1e-9 * static_cast<double>(end - replay.front().begin_ns);
}

void replay(TrainingStep& step, const CapturedUpdates& update) {
  if (!step.replay(update)) throw Error("explain: the step's arena moved while it was measured");
}

StepTimes measure_on_gpu(TrainingStep& step, const Batch& batch, std::int64_t accumulate) {
  const Stream stream = step.model().runtime().stream(step.model().device());
  for (int i = 0; i < kWarmUps; ++i) run_update(step, batch, accumulate);
  LoggedCapture captured;
  capture(step, batch, accumulate, captured);
  for (int i = 0; i < kWarmUps; ++i) replay(step, *captured.update);
  (void)step.read_metrics();
  StepTimes times{.updates = kUpdates};
  times.untraced_seconds = seconds_an_update(stream, kUpdates, [&] { replay(step, *captured.update); });
  (void)step.read_metrics();
  synchronize(stream);
  ActivityTrace trace;
  for (int i = 0; i < kUpdates + 1; ++i) replay(step, *captured.update);
  synchronize(stream);
  const std::vector<DeviceActivity> activities = trace.stop();
  (void)step.read_metrics();
  const std::size_t count = captured.owner.size();
  if (count == 0 || activities.size() != count * (kUpdates + 1))
    throw Error(fmt::format("explain: {} updates of {} kernels and copies gave {} activities", kUpdates + 1, count,
                            activities.size()));
  Owners owners;
  const std::span<const DeviceActivity> all(activities);
  for (std::size_t u = 0; u < kUpdates; ++u)
    divide(all.subspan(u * count, count), all[(u + 1) * count].begin_ns, captured, owners, times);
  for (double* sum : {&times.between_kernels, &times.between_updates, &times.step_seconds}) *sum /= kUpdates;
  times.nodes = std::move(owners).mean(kUpdates);
  return times;
}

}  // namespace

StepTimes measure_node_times(TrainingStep& step, const Batch& batch, std::int64_t accumulate) {
  return step.model().device().is_cuda() ? measure_on_gpu(step, batch, accumulate)
                                         : measure_on_cpu(step, batch, accumulate);
}

}  // namespace bantam::run
