// snapshot.pickle: the run as torch.cuda.memory._snapshot() would tell it, for https://pytorch.org/memory_viz.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/cli/profile/pickle.h"
#include "bantam/cli/profile/profile_files.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The viewer is JavaScript, whose numbers are exact to 2^53 only: the high bits of a stand-in's addresses are left
/// out. Real addresses have none there.
std::uintptr_t shown(std::uintptr_t address) { return address & ((std::uintptr_t{1} << 52) - 1); }

/// The viewer shows "filename:line:name": the layer, and what it was doing there.
Json frames(const AllocationTag& tag, const char* phase) {
  const std::string doing = fmt::format("{}{}{}", to_string(tag.category), *phase != '\0' ? " in " : "", phase);
  return Json::array({{{"filename", tag.owner}, {"line", 0}, {"name", doing}}});
}

/// A range's blocks tile it: live allocations, and what lies between them.
Json blocks(const RunRange& range, std::span<const TraceInterval> live) {
  Json blocks = Json::array();
  std::uintptr_t at = range.address;
  const auto gap_until = [&](std::uintptr_t end) {
    if (end > at)
      blocks.push_back({{"address", shown(at)},
                        {"size", end - at},
                        {"requested_size", 0},
                        {"state", "inactive"},
                        {"frames", Json::array()}});
  };
  for (const TraceInterval& interval : live) {
    if (interval.address < range.address || interval.address - range.address >= range.bytes) continue;
    gap_until(interval.address);
    blocks.push_back({{"address", shown(interval.address)},
                      {"size", interval.bytes},
                      {"requested_size", interval.requested},
                      {"state", "active_allocated"},
                      {"frames", frames(interval.tag, interval.phase)}});
    at = interval.address + interval.bytes;
  }
  gap_until(range.address + range.bytes);
  return blocks;
}

Json segments(const MemoryProfile& profile) {
  std::vector<TraceInterval> live = profile.trace->intervals();
  std::erase_if(live, [](const TraceInterval& i) { return i.upper != TraceInterval::kStillLive; });
  std::ranges::sort(live, {}, &TraceInterval::address);
  Json segments = Json::array();
  for (const RunRange& range : profile.addresses->ranges()) {
    if (!range.reserved) continue;
    const Json parts = blocks(range, live);
    std::uint64_t in_use = 0, requested = 0;
    for (const Json& block : parts) {
      requested += block["requested_size"].get<std::uint64_t>();
      if (block["state"] == "active_allocated") in_use += block["size"].get<std::uint64_t>();
    }
    segments.push_back({{"device", 0},
                        {"address", shown(range.address)},
                        {"total_size", range.bytes},
                        {"allocated_size", in_use},
                        {"active_size", in_use},
                        {"requested_size", requested},
                        {"stream", 0},
                        {"segment_type", "large"},
                        {"is_expandable", false},
                        {"frames", Json::array()},
                        {"blocks", parts}});
  }
  return segments;
}

/// A segment's coming and going; the trace does not say when within the run, so it is put at the ends of it. The
/// viewer needs a category "unknown" to be there where others are.
Json segment_event(const char* action, const RunRange& range, std::int64_t nanoseconds) {
  return {{"action", action},        {"addr", shown(range.address)},  {"size", range.bytes},  {"stream", 0},
          {"frames", Json::array()}, {"time_us", nanoseconds / 1000}, {"category", "unknown"}};
}

Json events(const MemoryProfile& profile) {
  Json events = Json::array();
  for (const RunRange& range : profile.addresses->ranges()) events.push_back(segment_event("segment_alloc", range, 0));
  for (const TraceEvent& event : profile.trace->events()) {
    const auto add = [&](const char* action) {
      events.push_back({{"action", action},
                        {"addr", shown(event.address)},
                        {"size", event.bytes},
                        {"stream", event.stream},
                        {"frames", frames(event.tag, event.phase)},
                        {"time_us", event.nanoseconds / 1000},
                        {"category", to_string(event.tag.category)}});
    };
    if (event.allocation) {
      add("alloc");
    } else {
      add("free_requested");
      add("free_completed");
    }
  }
  for (const RunRange& range : profile.addresses->ranges())
    if (!range.reserved) events.push_back(segment_event("segment_free", range, profile.steps.back().end_ns));
  return events;
}

}  // namespace

std::string snapshot_pickle(const MemoryProfile& profile) {
  const Json snapshot = {{"segments", segments(profile)},
                         {"device_traces", Json::array({events(profile)})},
                         {"allocator_settings", {{"allocator", "bantam"}, {"about", about_json(profile)}}}};
  return pickle(snapshot);
}

}  // namespace bantam::cli
