// On a GPU: the n-th activity of a launch is the n-th that was captured, whose call the kernel log knows.
#include "bantam/run/explain/step_recording.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/step/captured_updates.h"
#include "bantam/memory/device/activity_trace.h"
#include "bantam/memory/device/stream_clock.h"
#include "bantam/run/explain/trace_cost.h"

namespace bantam::run {
namespace {

using kernels::KernelEntry;
using kernels::KernelLog;

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

/// The step that is recorded, and what its updates run on.
struct Subject {
  TrainingStep& step;
  const Batch& batch;
  RecordingOptions options;

  Runtime& runtime() const { return step.model().runtime(); }
  Device device() const { return step.model().device(); }
  Stream stream() const { return runtime().stream(device()); }
  std::int64_t micro_batches() const { return options.accumulate * step.replicas().replicas; }
  void update() const {
    MicroBatches(step).accumulate(micro_batches(), 0, [&](std::int64_t) { return batch; });
    step.update();
  }
};

/// Seconds that `run` needs, with the device's work.
template <class Run>
double seconds_of(Stream stream, Run&& run) {
  synchronize(stream);
  const auto start = std::chrono::steady_clock::now();
  run();
  synchronize(stream);
  return seconds_since(start);
}

StepSlice slice_of(const KernelEntry& call) {
  return {.owner = call.owner, .phase = call.phase, .kernel = call.kernel, .work = call.work};
}

/// One update on its own, with a mark before each call and at the end, appended to the recording.
void record_calls(const Subject& subject, StepRecording& into) {
  StreamClock clock(subject.stream());
  KernelLog log;
  log.set_clock([&clock] { return clock.mark(); });
  std::optional<PartRecorder> threads;
  if (subject.device().is_cpu()) threads.emplace();
  (void)clock.mark();
  {
    const LogScope scope(subject.runtime(), subject.device(), log);
    subject.update();
  }
  (void)clock.mark();
  const std::vector<std::int64_t> times = clock.times();
  const std::int64_t base = into.updates.empty() ? 0 : into.updates.back().end_ns, shift = base - times.front();
  RecordedUpdate update{.begin_ns = base, .end_ns = times.back() + shift};
  for (const KernelEntry& call : log.entries()) {
    StepSlice slice = slice_of(call);
    slice.begin_ns = times[static_cast<std::size_t>(call.at)] + shift;
    slice.end_ns = times[static_cast<std::size_t>(call.at) + 1] + shift;
    update.slices.push_back(std::move(slice));
  }
  into.updates.push_back(std::move(update));
  if (!threads) return;
  for (PartSpan span : threads->stop()) {
    span.begin_ns += shift, span.end_ns += shift;
    into.threads.push_back(span);
  }
}

constexpr std::size_t half_of(std::size_t count) { return (count + 1) / 2; }

/// Recorded updates and others in turn, so that both meet the same machine.
StepRecording record_planned(const Subject& subject) {
  StepRecording recording{.method = subject.device().is_cuda() ? RecordingMethod::device_events
                                                               : RecordingMethod::host_clock};
  for (int i = 0; i < std::max(1, subject.options.warm_ups); ++i) subject.update();
  (void)subject.step.read_metrics();
  std::vector<double> plain;
  for (int i = 0; i < subject.options.updates; ++i) {
    plain.push_back(seconds_of(subject.stream(), [&] { subject.update(); }));
    record_calls(subject, recording);
    (void)subject.step.read_metrics();
  }
  std::ranges::sort(plain);
  const std::size_t half = half_of(plain.size());
  recording.plain_seconds = std::accumulate(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(half), 0.0) /
                            static_cast<double>(half);
  return recording;
}

/// Updates that were captured for one launch, and whose each of its activities is.
struct LoggedCapture {
  std::unique_ptr<CapturedUpdates> updates;
  KernelLog log;                          // entries' `at`: activities captured before the call
  std::vector<const KernelEntry*> calls;  // by activity; null: of no kernel call
  std::vector<std::size_t> begins;        // of each update's activities, and where the last one's end
};

/// As many as training launches at once where the batches lie on the device (DeviceEpoch), and a divisor of all.
int updates_a_launch(const Subject& subject) {
  constexpr std::uint64_t kLaunchBytes = 32 << 20;
  const std::uint64_t bytes = std::max<std::uint64_t>(1, subject.batch.at(kImages).bytes());
  const auto most = static_cast<int>(std::clamp<std::uint64_t>(
      kLaunchBytes / (bytes * static_cast<std::uint64_t>(subject.micro_batches())), 1, Optimizer::kMostRates));
  int updates = std::min(most, subject.options.updates);
  while (subject.options.updates % updates != 0) --updates;
  return updates;
}

void capture(const Subject& subject, int updates, LoggedCapture& into) {
  const Stream stream = subject.stream();
  into.log.set_clock([stream] { return captured_activities(stream); });
  const LogScope scope(subject.runtime(), subject.device(), into.log);
  const auto note = [&] { into.begins.push_back(static_cast<std::size_t>(captured_activities(stream))); };
  into.updates = subject.step.capture([&] {
    for (int i = 0; i < updates; ++i) {
      note();
      subject.update();
    }
    note();
  });
  into.calls.resize(into.begins.back());
  for (const KernelEntry& call : into.log.entries())  // in order: later calls own what follows them
    std::fill(into.calls.begin() + static_cast<std::ptrdiff_t>(call.at), into.calls.end(), &call);
}

/// One update's activities, from the first one's beginning to `end`, the next update's first. Where two overlap (a
/// kernel that was launched early), the one that began first owns the instant.
RecordedUpdate divide(std::span<const DeviceActivity> activities, std::span<const KernelEntry* const> calls,
                      std::int64_t origin, std::int64_t end) {
  RecordedUpdate update{.begin_ns = activities.front().begin_ns - origin, .end_ns = end - origin};
  std::int64_t covered = update.begin_ns;
  for (std::size_t i = 0; i < activities.size(); ++i) {
    const KernelEntry* call = calls[i];
    StepSlice slice = call != nullptr ? slice_of(*call) : StepSlice{.phase = kernels::KernelPhase::input};
    if (i > 0 && calls[i - 1] == call) {
      slice.begins_call = false;
      slice.work = {.passes = 0};
    }
    slice.device_kernel = activities[i].name;
    slice.begin_ns = std::clamp(activities[i].begin_ns - origin, covered, std::max(covered, update.end_ns));
    slice.end_ns = std::clamp(activities[i].end_ns - origin, slice.begin_ns, std::max(slice.begin_ns, update.end_ns));
    covered = slice.end_ns;
    update.slices.push_back(std::move(slice));
  }
  return update;
}

std::vector<DeviceActivity> trace_launches(const Subject& subject, const LoggedCapture& captured, int launches) {
  const auto replay = [&] {
    if (!subject.step.replay(*captured.updates)) throw Error("the step's arena moved while it was recorded");
  };
  ActivityTrace trace;
  for (int i = 0; i < launches; ++i) replay();
  synchronize(subject.stream());
  std::vector<DeviceActivity> activities = trace.stop();
  (void)subject.step.read_metrics();
  const std::size_t wanted = captured.calls.size() * static_cast<std::size_t>(launches);
  if (captured.calls.empty() || activities.size() != wanted)
    throw Error(fmt::format("{} launches of {} kernels and copies were traced as {} activities, not {}", launches,
                            captured.calls.size(), activities.size(), wanted));
  return activities;
}

/// Plain and warm-up launches, then traced ones: one that pays for the tracing, those that count, and one whose
/// beginning ends the last update.
StepRecording record_captured(const Subject& subject, const LoggedCapture& captured) {
  StepRecording recording{.method = RecordingMethod::driver_trace, .updates_a_launch = captured.updates->updates};
  const auto launches = static_cast<std::size_t>(subject.options.updates / recording.updates_a_launch);
  const auto replay = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (!subject.step.replay(*captured.updates)) throw Error("the step's arena moved while it was recorded");
  };
  replay(1 + static_cast<std::size_t>(std::max(0, subject.options.warm_ups - 1)) /
                 static_cast<std::size_t>(recording.updates_a_launch));
  (void)subject.step.read_metrics();
  recording.plain_seconds = seconds_of(subject.stream(), [&] { replay(launches); }) / subject.options.updates;
  (void)subject.step.read_metrics();
  const std::vector<DeviceActivity> all = trace_launches(subject, captured, static_cast<int>(launches) + 2);
  const std::size_t count = captured.calls.size(), updates = captured.begins.size() - 1;
  for (std::size_t u = 0; u < launches * updates; ++u) {
    const std::size_t first = (1 + u / updates) * count, begin = captured.begins[u % updates],
                      end = captured.begins[u % updates + 1];
    recording.updates.push_back(divide(std::span(all).subspan(first + begin, end - begin),
                                       std::span(captured.calls).subspan(begin, end - begin), all[count].begin_ns,
                                       all[first + end].begin_ns));
  }
  recording.trace_cost_seconds = take_off_trace_cost(recording.updates, recording.plain_seconds);
  return recording;
}

StepRecording record_on_gpu(const Subject& subject) {
  std::string why = subject.options.driver_trace ? activity_trace_unavailable() : "a trace was not asked for";
  if (why.empty()) why = subject.step.without_meta();
  LoggedCapture captured;
  if (why.empty()) {
    for (int i = 0; i < 2; ++i) subject.update();  // they load what capturing must not load
    (void)subject.step.read_metrics();
    try {
      capture(subject, updates_a_launch(subject), captured);
      return record_captured(subject, captured);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {  // a step that cannot be captured, or a driver that does not trace, or not all
      why = error.what();
      (void)subject.step.read_metrics();
    }
  }
  StepRecording recording = record_planned(subject);
  recording.why_not_traced = why;
  return recording;
}

}  // namespace

std::string_view to_string(RecordingMethod method) {
  constexpr std::string_view kNames[] = {"driver trace", "device events", "host clock"};
  return kNames[static_cast<std::size_t>(method)];
}

std::vector<const RecordedUpdate*> StepRecording::typical_updates() const {
  std::vector<const RecordedUpdate*> chosen;
  for (const RecordedUpdate& update : updates) chosen.push_back(&update);
  if (method == RecordingMethod::driver_trace) return chosen;
  std::ranges::stable_sort(chosen, {}, [](const RecordedUpdate* update) { return update->end_ns - update->begin_ns; });
  chosen.resize(half_of(chosen.size()));
  return chosen;
}

StepRecording record_updates(TrainingStep& step, const Batch& batch, const RecordingOptions& options) {
  if (options.updates < 1 || options.warm_ups + options.updates > kMostRecordedUpdates)
    throw Error(fmt::format("from 1 to {} updates can be recorded, got {} after {}", kMostRecordedUpdates,
                            options.updates, options.warm_ups));
  const Subject subject{step, batch, options};
  return subject.device().is_cuda() ? record_on_gpu(subject) : record_planned(subject);
}

}  // namespace bantam::run
