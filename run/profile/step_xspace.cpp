// Planes of lines of events. A plane's events and stats name their kinds by numbers, whose names follow the lines.
#include "bantam/run/profile/step_xspace.h"

#include <chrono>
#include <cstddef>
#include <ctime>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/protobuf.h"
#include "bantam/run/train/run_lock.h"

namespace bantam::run {
namespace {

// XSpace
constexpr std::uint32_t kPlanes = 1, kHostNames = 4;
// XPlane
constexpr std::uint32_t kPlaneId = 1, kPlaneName = 2, kLines = 3, kEventKinds = 4, kStatKinds = 5, kPlaneStats = 6;
// XLine
constexpr std::uint32_t kLineId = 1, kLineName = 2, kTimestamp = 3, kEvents = 4;
// XEvent
constexpr std::uint32_t kEventKind = 1, kOffset = 2, kDuration = 3, kEventStats = 4;
// XStat
constexpr std::uint32_t kStatKind = 1, kInteger = 4, kText = 5;

/// Numbers from 1 for names, and the map of a plane's message that tells them: entries of a key and of a message with
/// `id` and `name`.
class Kinds {
 public:
  std::int64_t operator()(const std::string& name) {
    const auto [place, fresh] = numbers_.try_emplace(name, static_cast<std::int64_t>(names_.size()) + 1);
    if (fresh) names_.push_back(name);
    return place->second;
  }
  void write(ProtoWriter& plane, std::uint32_t field) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      ProtoWriter kind, entry;
      kind.integer(1, static_cast<std::int64_t>(i) + 1);
      kind.bytes(2, names_[i]);
      entry.integer(1, static_cast<std::int64_t>(i) + 1);
      entry.message(2, kind);
      plane.message(field, entry);
    }
  }

 private:
  std::map<std::string, std::int64_t> numbers_;
  std::vector<std::string> names_;
};

/// One plane. Lines are written one after the other: events belong to the line that was begun last.
class Plane {
 public:
  Plane(std::int64_t id, const std::string& name, std::int64_t begin_ns) : begin_ns_(begin_ns) {
    plane_.integer(kPlaneId, id);
    plane_.bytes(kPlaneName, name);
  }
  void begin_line(const std::string& name) {
    end_line();
    line_ = ProtoWriter();
    line_.integer(kLineId, ++lines_);
    line_.bytes(kLineName, name);
    line_.integer(kTimestamp, begin_ns_);
  }
  /// Adds a stat to the next event.
  void stat(const char* name, std::int64_t value) {
    ProtoWriter stat;
    stat.integer(kStatKind, stat_kinds_(name));
    stat.integer(kInteger, value);
    event_.message(kEventStats, stat);
  }
  void stat(const char* name, std::string_view text) { event_.message(kEventStats, text_stat(name, text)); }
  /// Times are of the recording, in nanoseconds. What took no time is left out, as are its stats.
  void event(const std::string& name, std::int64_t begin, std::int64_t end) {
    ProtoWriter event = std::exchange(event_, {});
    if (end <= begin) return;
    constexpr std::int64_t kPicoseconds = 1000;
    event.integer(kEventKind, event_kinds_(name));
    event.integer(kOffset, begin * kPicoseconds);
    event.integer(kDuration, (end - begin) * kPicoseconds);
    line_.message(kEvents, event);
  }
  void plane_stat(const char* name, std::string_view text) { plane_.message(kPlaneStats, text_stat(name, text)); }
  ProtoWriter release() && {
    end_line();
    event_kinds_.write(plane_, kEventKinds);
    stat_kinds_.write(plane_, kStatKinds);
    return std::move(plane_);
  }

 private:
  ProtoWriter text_stat(const char* name, std::string_view text) {
    ProtoWriter stat;
    stat.integer(kStatKind, stat_kinds_(name));
    stat.bytes(kText, text);
    return stat;
  }
  void end_line() {
    if (lines_ > 0) plane_.message(kLines, line_);
  }

  std::int64_t begin_ns_;
  std::int64_t lines_ = 0;
  Kinds event_kinds_, stat_kinds_;
  ProtoWriter plane_, line_, event_;  // those that are being written
};

/// "layer:conv2d_forward": the plugin takes what stands before the colon for an operation, and what follows for its
/// kind.
std::string operation_of(const StepSlice& slice) {
  return slice.owner.empty() ? slice.kernel : fmt::format("{}:{}", slice.owner, slice.kernel);
}

bool is_copy(const StepSlice& slice) { return slice.device_kernel == "copy" || slice.device_kernel == "memset"; }

/// The plugin tells kernels by their details. Theirs are not recorded, so that it shows 0 registers and grids of 1.
constexpr std::string_view kNoDetails = "regs:0";

ProtoWriter device_plane(const StepProfile& profile, std::int64_t begin_ns) {
  Plane plane(1, fmt::format("/device:GPU:{}", profile.device.index), begin_ns);
  plane.plane_stat("device_vendor", "Nvidia");
  plane.begin_line("Stream #1(Kernel)");
  std::int64_t group = 0, launch = 0;
  for (const RecordedUpdate& update : profile.recording.updates) {
    for (const StepSlice& slice : update.slices) {
      plane.stat("group_id", group);
      plane.stat("correlation_id", ++launch);
      if (!slice.owner.empty()) plane.stat("tf_op", operation_of(slice));
      if (!is_copy(slice)) plane.stat("kernel_details", kNoDetails);
      plane.stat("phase", to_string(slice.phase));
      plane.stat("flops", slice.work.flops);
      plane.stat("bytes_accessed", slice.work.bytes);
      plane.event(slice.device_kernel.empty() ? slice.kernel : readable_kernel(slice.device_kernel), slice.begin_ns,
                  slice.end_ns);
    }
    ++group;
  }
  return std::move(plane).release();
}

/// On the CPU a step's phases, and within them its kernels.
void add_host_slices(Plane& plane, const RecordedUpdate& update) {
  const std::vector<StepSlice>& slices = update.slices;
  for (std::size_t first = 0, next = 0; first < slices.size(); first = next) {
    while (next < slices.size() && slices[next].phase == slices[first].phase) ++next;
    plane.event(std::string(to_string(slices[first].phase)), slices[first].begin_ns, slices[next - 1].end_ns);
    for (std::size_t i = first; i < next; ++i) {
      plane.stat("flops", slices[i].work.flops);
      plane.stat("bytes_accessed", slices[i].work.bytes);
      plane.event(operation_of(slices[i]), slices[i].begin_ns, slices[i].end_ns);
    }
  }
}

void add_threads(Plane& plane, const StepProfile& profile) {
  for (const ProfiledThread& thread : profile.threads) {
    plane.begin_line(thread.thread == 0 ? "main thread" : fmt::format("worker {}", thread.thread));
    for (const PartSpan& span : profile.recording.threads)
      if (span.thread == thread.thread)
        plane.event(span.waits ? "waits for other threads" : "parts of a kernel", span.begin_ns, span.end_ns);
  }
}

ProtoWriter host_plane(const StepProfile& profile, std::int64_t begin_ns) {
  Plane plane(2, "/host:CPU", begin_ns);
  plane.begin_line(profile.device.is_cuda() ? "steps, by the GPU's clock" : "steps, phases and kernels");
  std::int64_t number = profile.options.first_step;
  for (const RecordedUpdate& update : profile.recording.updates) {
    plane.stat("step_num", number++);
    plane.stat("_r", 1);  // a root: what lies within it, or has its group_id, belongs to this step
    plane.event("step", update.begin_ns, update.end_ns);
    if (!profile.device.is_cuda()) add_host_slices(plane, update);
  }
  add_threads(plane, profile);
  return std::move(plane).release();
}

}  // namespace

std::string step_xspace(const StepProfile& profile, const XSpaceOrigin& origin) {
  ProtoWriter space;
  if (profile.device.is_cuda()) space.message(kPlanes, device_plane(profile, origin.begin_ns));
  space.message(kPlanes, host_plane(profile, origin.begin_ns));
  space.bytes(kHostNames, origin.host);
  return space.text();
}

std::filesystem::path write_step_xspace(const StepProfile& profile, const std::filesystem::path& folder) {
  const auto now = std::chrono::system_clock::now();
  const std::int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  const std::int64_t recorded = profile.recording.updates.empty() ? 0 : profile.recording.updates.back().end_ns;
  const std::string name = host_name(), host = name.empty() ? "localhost" : name;
  const std::filesystem::path run =
      folder / "plugins" / "profile" /
      fmt::format("{:%Y_%m_%d_%H_%M_%S}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  make_folders(run);
  std::filesystem::path file = run / (host + ".xplane.pb");
  write_file_atomically(file, step_xspace(profile, {.host = host, .begin_ns = ns - recorded}));
  return file;
}

}  // namespace bantam::run
