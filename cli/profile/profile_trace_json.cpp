// trace.json: steps, phases and layers as slices, bytes as counters, for Perfetto and chrome://tracing.
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/cli/profile/profile_files.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

enum MemoryTrack : int { kSteps = 1, kPhases = 2, kLayers = 3, kCalls = 4 };

/// Collects events; times go in as nanoseconds, and out in the format's microseconds.
class MemoryTraceWriter {
 public:
  explicit MemoryTraceWriter(const std::string& process) {
    metadata("process_name", 0, process);
    constexpr std::array<const char*, 4> kNames = {"steps", "phases", "layers", "allocations and frees"};
    for (int track = kSteps; track <= kCalls; ++track) {
      metadata("thread_name", track, kNames[static_cast<std::size_t>(track - 1)]);
      Json order = event("thread_sort_index", "M", 0, track);
      order["args"]["sort_index"] = track;
      events_.push_back(std::move(order));
    }
  }
  void slice(MemoryTrack track, const std::string& name, std::int64_t begin, std::int64_t end, Json args) {
    Json slice = event(name, "X", begin, track);
    slice["dur"] = static_cast<double>(end - begin) / 1e3;
    slice["args"] = std::move(args);
    events_.push_back(std::move(slice));
  }
  void instant(const std::string& name, std::int64_t at, Json args) {
    Json instant = event(name, "i", at, kCalls);
    instant["s"] = "t";
    instant["args"] = std::move(args);
    events_.push_back(std::move(instant));
  }
  void counter(const std::string& name, std::int64_t at, std::uint64_t bytes) {
    Json counter = event(name, "C", at, 0);
    counter["args"]["bytes"] = bytes;
    events_.push_back(std::move(counter));
  }
  Json release() { return std::move(events_); }

 private:
  static Json event(const std::string& name, const char* kind, std::int64_t at, int track) {
    return {{"name", name}, {"ph", kind}, {"ts", static_cast<double>(at) / 1e3}, {"pid", 1}, {"tid", track}};
  }
  void metadata(const char* what, int track, const std::string& name) {
    Json line = event(what, "M", 0, track);
    line["args"]["name"] = name;
    events_.push_back(std::move(line));
  }
  Json events_ = Json::array();
};

void add_steps(const MemoryProfile& profile, MemoryTraceWriter& writer) {
  for (const StepSpan& step : profile.steps)
    writer.slice(kSteps, fmt::format("step {}", step.number), step.begin_ns, step.end_ns,
                 {{"calls", step.upper - step.lower}});
}

void add_phases(const MemoryProfile& profile, MemoryTraceWriter& writer) {
  const auto phases = profile.trace->phases();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::int64_t end = i + 1 < phases.size() ? phases[i + 1].nanoseconds : profile.steps.back().end_ns;
    writer.slice(kPhases, phases[i].name, phases[i].nanoseconds, end, {{"step", profile.step_at(phases[i].tick)}});
  }
}

/// Consecutive allocations of one layer in one phase make a slice, up to the next layer's first.
void add_layers(const MemoryProfile& profile, MemoryTraceWriter& writer) {
  const auto events = profile.trace->events();
  const auto same = [](const TraceEvent& a, const TraceEvent& b) {
    return std::strcmp(a.tag.owner, b.tag.owner) == 0 && std::strcmp(a.phase, b.phase) == 0;
  };
  const TraceEvent* first = nullptr;
  std::uint64_t bytes = 0, allocations = 0;
  const auto finish = [&](std::int64_t end) {
    if (first != nullptr)
      writer.slice(kLayers, first->tag.owner, first->nanoseconds, end,
                   {{"phase", first->phase}, {"allocations", allocations}, {"bytes", bytes}});
  };
  for (const TraceEvent& event : events) {
    if (!event.allocation) continue;
    if (first == nullptr || !same(*first, event)) {
      finish(event.nanoseconds);
      first = &event;
      bytes = allocations = 0;
    }
    bytes += event.bytes;
    ++allocations;
  }
  finish(profile.steps.back().end_ns);
}

void add_calls(const MemoryProfile& profile, MemoryTraceWriter& writer) {
  CategoryBytes bytes;
  std::uint64_t reserved = 0;
  std::size_t tick = 0;
  for (const TraceEvent& event : profile.trace->events()) {
    const std::int64_t at = event.nanoseconds;
    std::uint64_t& own = bytes[event.tag.category];
    own = event.allocation ? own + event.bytes : own - event.bytes;
    writer.counter(std::string(to_string(event.tag.category)), at, own);
    writer.counter("in use", at, profile.in_use[tick]);
    if (event.pool_bytes != reserved) writer.counter("held", at, reserved = event.pool_bytes);
    writer.instant(event.allocation ? "alloc" : "free", at,
                   {{"layer", event.tag.owner},
                    {"category", to_string(event.tag.category)},
                    {"bytes", event.bytes},
                    {"requested", event.requested},
                    {"offset", profile.addresses->offset(event.address)},
                    {"tick", tick}});
    ++tick;
  }
}

}  // namespace

std::string trace_json(const MemoryProfile& profile) {
  MemoryTraceWriter writer(fmt::format("bantam: {} on {}", profile.model, to_string(profile.device)));
  add_steps(profile, writer);
  add_phases(profile, writer);
  add_layers(profile, writer);
  add_calls(profile, writer);
  const Json trace = {{"displayTimeUnit", "ms"}, {"otherData", about_json(profile)}, {"traceEvents", writer.release()}};
  return json_text(trace);
}

}  // namespace bantam::cli
