// events.csv: the trace as a table, for spreadsheets and scripts.
#include <fmt/format.h>

#include "bantam/cli/predict/prediction_writer.h"
#include "bantam/cli/profile/profile_files.h"

namespace bantam::cli {
std::string events_csv(const MemoryProfile& profile) {
  std::string text = "tick,us,step,phase,action,offset,bytes,requested,category,owner,in_use,held,stream\n";
  std::int64_t tick = 0;
  for (const TraceEvent& event : profile.trace->events()) {
    text += fmt::format("{},{:.3f},{},{},{},{},{},{},{},{},{},{},{}\n", tick,
                        static_cast<double>(event.nanoseconds) / 1e3, profile.step_at(tick), event.phase,
                        event.allocation ? "alloc" : "free", profile.addresses->offset(event.address), event.bytes,
                        event.requested, to_string(event.tag.category), csv_cell(event.tag.owner),
                        profile.in_use[static_cast<std::size_t>(tick)], event.pool_bytes, event.stream);
    ++tick;
  }
  return text;
}

}  // namespace bantam::cli
