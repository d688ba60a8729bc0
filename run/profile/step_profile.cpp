// Slices added up by kernel, operation, gap and thread.
#include "bantam/run/profile/step_profile.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "bantam/run/bench/step_session.h"

namespace bantam::run {
namespace {

using kernels::KernelPhase;

double seconds(std::int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

/// Adds up recorded updates; `release` divides by their number.
class Sums {
 public:
  explicit Sums(const Explanation& explanation) {
    for (const ExplainedNode& node : explanation.nodes)
      nodes_[place_of(node.name)] = {
          .name = node.name, .runs = node.runs, .predicted_seconds = node.predicted_seconds()};
  }

  void add(const RecordedUpdate& update) {
    std::string after;
    std::int64_t covered = update.begin_ns;
    for (const StepSlice& slice : update.slices) {
      add_gap(after, slice.owner, slice.begin_ns - covered);
      add_slice(slice);
      after = slice.owner;
      covered = slice.end_ns;
    }
    add_gap(after, "", update.end_ns - covered);
    step_seconds_ += seconds(update.end_ns - update.begin_ns);
  }

  void release(double updates, StepProfile& into) {
    const auto mean = [updates](TimedWork& work) {
      for (double* sum : {&work.seconds, &work.calls, &work.bytes, &work.flops}) *sum /= updates;
    };
    for (ProfiledNode& node : nodes_) std::ranges::for_each(node.by_phase, mean);
    share_work();
    for (auto& [key, kernel] : kernels_) {
      mean(kernel.work);
      into.kernels.push_back(std::move(kernel));
    }
    for (auto& [key, total] : gaps_) {
      into.gaps.push_back({key.first, key.second, total / updates});
      into.gap_seconds += total / updates;
    }
    into.nodes = std::move(nodes_);
    into.step_seconds = step_seconds_ / updates;
    std::ranges::stable_sort(into.kernels, std::greater<>(), [](const auto& kernel) { return kernel.work.seconds; });
    std::ranges::stable_sort(into.gaps, std::greater<>(), &ProfiledGap::seconds);
  }

 private:
  /// A call's bytes and operations are recorded with its first kernel: of those that it consists of, each gets a share
  /// by its time.
  void share_work() {
    const auto same_call = [](const auto& a, const auto& b) {
      return std::tie(a.operation, a.phase, a.kernel) == std::tie(b.operation, b.phase, b.kernel);
    };
    for (auto first = kernels_.begin(); first != kernels_.end();) {
      TimedWork all;
      auto end = first;
      for (; end != kernels_.end() && same_call(end->second, first->second); ++end) all.add(end->second.work);
      for (; first != end; ++first) {
        TimedWork& work = first->second.work;
        const double share = all.seconds > 0 ? work.seconds / all.seconds : 0;
        work.bytes = share * all.bytes;
        work.flops = share * all.flops;
      }
    }
  }

  std::size_t place_of(const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(name, nodes_.size());
    if (is_new) nodes_.push_back({.name = name, .runs = ""});
    return place->second;
  }
  void add_slice(const StepSlice& slice) {
    const TimedWork work{.seconds = seconds(slice.end_ns - slice.begin_ns),
                         .calls = slice.begins_call ? 1.0 : 0.0,
                         .bytes = static_cast<double>(slice.work.bytes),
                         .flops = static_cast<double>(slice.work.flops)};
    nodes_[place_of(slice.owner)].by_phase[static_cast<std::size_t>(slice.phase)].add(work);
    const auto [place, is_new] = kernels_.try_emplace({slice.owner, slice.phase, slice.kernel, slice.device_kernel});
    if (is_new)
      place->second = {.operation = slice.owner,
                       .phase = slice.phase,
                       .kernel = slice.kernel,
                       .device_kernel = readable_kernel(slice.device_kernel)};
    place->second.work.add(work);
  }
  void add_gap(const std::string& after, const std::string& before, std::int64_t nanoseconds) {
    if (nanoseconds > 0) gaps_[{after, before}] += seconds(nanoseconds);
  }

  std::map<std::string, std::size_t> places_;
  std::vector<ProfiledNode> nodes_;
  std::map<std::tuple<std::string, KernelPhase, std::string, std::string>, ProfiledKernel> kernels_;
  std::map<std::pair<std::string, std::string>, double> gaps_;
  double step_seconds_ = 0;
};

/// Worker threads work in their spans; the calling thread works where it does not wait.
std::vector<ProfiledThread> threads_of(const StepRecording& recording) {
  std::map<int, std::int64_t> nanoseconds;
  for (const PartSpan& span : recording.threads)
    if (span.waits || span.thread > 0) nanoseconds[span.thread] += span.end_ns - span.begin_ns;
  std::vector<ProfiledThread> threads;
  if (recording.threads.empty()) return threads;
  const auto all = static_cast<double>(recording.updates.back().end_ns);
  threads.push_back({0, 1 - static_cast<double>(nanoseconds[0]) / all});
  for (const auto& [thread, busy] : nanoseconds)
    if (thread > 0) threads.push_back({thread, static_cast<double>(busy) / all});
  return threads;
}

}  // namespace

void TimedWork::add(const TimedWork& other) {
  seconds += other.seconds;
  calls += other.calls;
  bytes += other.bytes;
  flops += other.flops;
}

double TimedWork::floor_seconds(const MeasuredRates& rates) const {
  return std::max(bytes / rates.copy_bytes_per_s, flops / rates.flops_per_s);
}

TimedWork ProfiledNode::total() const {
  TimedWork sum;
  for (const TimedWork& work : by_phase) sum.add(work);
  return sum;
}

double StepProfile::floor_seconds() const {
  double sum = 0;
  for (const ProfiledKernel& kernel : kernels) sum += rates ? kernel.work.floor_seconds(*rates) : 0;
  return sum;
}

StepProfile summarize(const Explanation& explanation, StepRecording recording) {
  StepProfile profile;
  Sums sums(explanation);
  const std::vector<const RecordedUpdate*> updates = recording.typical_updates();
  for (const RecordedUpdate* update : updates) sums.add(*update);
  sums.release(static_cast<double>(updates.size()), profile);
  profile.threads = threads_of(recording);
  profile.recording = std::move(recording);
  return profile;
}

StepProfile profile_step(const RunConfig& config, const StepCase& step, const StepProfileOptions& options) {
  const Explanation explanation = explain(config, step, rates_of(config, step.precision));
  StepProfile profile = [&] {
    StepSession session(config, step, config.device, options.threads);
    return summarize(explanation,
                     record_updates(session.step(), session.batch(),
                                    {.accumulate = config.train.accumulate,
                                     .warm_ups = static_cast<int>(options.first_step) - 1,
                                     .updates = static_cast<int>(options.last_step - options.first_step) + 1}));
  }();
  profile.model = config.model.name;
  profile.step = step;
  profile.device = config.device;
  profile.accumulate = config.train.accumulate;
  profile.options = options;
  profile.rates = measure_rates(config, step.precision, options.threads);
  profile.changes = step_changes(config, step, profile.gap_seconds / profile.step_seconds);
  if (options.try_seconds > 0) try_changes(config, step, options.threads, options.try_seconds, profile.changes);
  std::ranges::stable_sort(profile.changes, {}, &StepChange::share);
  profile.headline = step_headline(profile);
  return profile;
}

}  // namespace bantam::run
