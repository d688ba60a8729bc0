// trace.json of a step's profile: steps, phases, operations and kernels on tracks above each other.
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>

#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/cli/profile/step_files.h"
#include "bantam/cli/profile/step_profile_report.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

enum StepTrack : int { kStepTrack = 1, kPhaseTrack = 2, kOperationTrack = 3, kKernelTrack = 4, kThreadTracks = 5 };

/// Collects events; times go in as nanoseconds, and out in the format's microseconds.
class StepTraceWriter {
 public:
  StepTraceWriter(const std::string& process, std::size_t threads) {
    name("process_name", 0, process);
    constexpr std::array<const char*, 4> kNames = {"steps", "phases", "operations", "kernels and gaps"};
    for (std::size_t i = 0; i < kNames.size(); ++i) name("thread_name", kStepTrack + static_cast<int>(i), kNames[i]);
    for (std::size_t t = 0; t < threads; ++t)
      name("thread_name", kThreadTracks + static_cast<int>(t), t == 0 ? "main thread" : fmt::format("worker {}", t));
  }
  void slice(int track, const std::string& name, std::int64_t begin, std::int64_t end, Json args = Json::object()) {
    if (end <= begin) return;
    events_.push_back({{"name", name},
                       {"ph", "X"},
                       {"ts", static_cast<double>(begin) / 1e3},
                       {"dur", static_cast<double>(end - begin) / 1e3},
                       {"pid", 1},
                       {"tid", track},
                       {"args", std::move(args)}});
  }
  Json release() && { return std::move(events_); }

 private:
  void name(const char* what, int track, const std::string& text) {
    events_.push_back({{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", text}}}});
    if (track > 0)
      events_.push_back(
          {{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"sort_index", track}}}});
  }
  Json events_ = Json::array();
};

/// A slice for each run of neighbours that `same` says are one.
void add_runs(StepTraceWriter& writer, int track, const RecordedUpdate& update,
              const std::function<bool(const StepSlice&, const StepSlice&)>& same,
              const std::function<std::string(const StepSlice&)>& name) {
  const std::vector<StepSlice>& slices = update.slices;
  for (std::size_t first = 0, next = 0; first < slices.size(); first = next) {
    while (next < slices.size() && same(slices[first], slices[next])) ++next;
    writer.slice(track, name(slices[first]), slices[first].begin_ns, slices[next - 1].end_ns);
  }
}

std::string operation_of(const StepSlice& slice) { return slice.owner.empty() ? "(no operation)" : slice.owner; }

void add_kernels(StepTraceWriter& writer, const RecordedUpdate& update) {
  std::int64_t covered = update.begin_ns;
  for (const StepSlice& slice : update.slices) {
    writer.slice(kKernelTrack, "(gap)", covered, slice.begin_ns, {{"before", operation_of(slice)}});
    const std::string name = slice.device_kernel.empty() ? slice.kernel : readable_kernel(slice.device_kernel);
    writer.slice(kKernelTrack, name, slice.begin_ns, slice.end_ns,
                 {{"operation", operation_of(slice)},
                  {"phase", to_string(slice.phase)},
                  {"call", slice.kernel},
                  {"bytes", slice.work.bytes},
                  {"flops", slice.work.flops}});
    covered = slice.end_ns;
  }
  writer.slice(kKernelTrack, "(gap)", covered, update.end_ns, {{"before", "the next step"}});
}

void add_update(StepTraceWriter& writer, const RecordedUpdate& update, std::int64_t number) {
  writer.slice(kStepTrack, fmt::format("step {}", number), update.begin_ns, update.end_ns);
  add_runs(
      writer, kPhaseTrack, update, [](const StepSlice& a, const StepSlice& b) { return a.phase == b.phase; },
      [](const StepSlice& slice) { return std::string(to_string(slice.phase)); });
  add_runs(
      writer, kOperationTrack, update,
      [](const StepSlice& a, const StepSlice& b) { return a.phase == b.phase && a.owner == b.owner; }, operation_of);
  add_kernels(writer, update);
}

}  // namespace

std::string step_trace_json(const StepProfile& profile) {
  StepTraceWriter writer(fmt::format("bantam: {} on {}", profile.model, to_string(profile.device)),
                         profile.threads.size());
  std::int64_t number = profile.options.first_step;
  for (const RecordedUpdate& update : profile.recording.updates) add_update(writer, update, number++);
  for (const PartSpan& span : profile.recording.threads)
    writer.slice(kThreadTracks + span.thread, span.waits ? "waits for other threads" : "parts of a kernel",
                 span.begin_ns, span.end_ns);
  const Json trace = {{"displayTimeUnit", "ms"},
                      {"otherData",
                       {{"model", profile.model},
                        {"batch", profile.step.batch},
                        {"device", to_string(profile.device)},
                        {"method", method_words(profile.recording.method, profile.recording.why_not_traced)}}},
                      {"traceEvents", std::move(writer).release()}};
  return json_text(trace);
}

}  // namespace bantam::cli
