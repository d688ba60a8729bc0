// report.html: the page of cli/pages/ with a run's data in it, as columns to keep it small.
#include <map>
#include <string>

#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/cli/pages/page_parts.h"
#include "bantam/cli/pages/page_text.h"
#include "bantam/cli/profile/names.h"
#include "bantam/cli/profile/profile_files.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

void add_intervals(const MemoryProfile& profile, Json& json) {
  Names owners, phases;
  Json columns;
  for (const TraceInterval& interval : profile.trace->intervals()) {
    columns["lower"].push_back(interval.lower);
    columns["upper"].push_back(interval.upper);
    columns["bytes"].push_back(interval.bytes);
    columns["requested"].push_back(interval.requested);
    columns["category"].push_back(static_cast<int>(interval.tag.category));
    columns["owner"].push_back(owners(interval.tag.owner));
    columns["phase"].push_back(phases(interval.phase));
    columns["offset"].push_back(profile.addresses->offset(interval.address));
  }
  json["intervals"] = std::move(columns);
  json["owners"] = owners.all();
  json["phase_names"] = phases.all();
}

void add_events(const MemoryProfile& profile, Json& json) {
  for (const TraceEvent& event : profile.trace->events()) {
    json["events"]["us"].push_back(static_cast<double>(event.nanoseconds / 100) / 10);
    json["events"]["held"].push_back(event.pool_bytes);
  }
  for (const TracePhase& phase : profile.trace->phases())
    json["phases"].push_back({{"name", phase.name}, {"tick", phase.tick}});
  for (const StepSpan& step : profile.steps)
    json["steps"].push_back({{"number", step.number}, {"lower", step.lower}, {"upper", step.upper}});
  for (const RunRange& range : profile.addresses->ranges())
    json["ranges"].push_back({{"offset", range.offset}, {"bytes", range.bytes}, {"held", range.reserved}});
}

Json report_data(const MemoryProfile& profile) {
  Json json = {{"about", about_json(profile)},
               {"first_step", profile.options.first_step},
               {"last_step", profile.options.last_step},
               {"peak_tick", profile.peak_tick},
               {"planned_peak_bytes", profile.planned_peak_bytes},
               {"limit_bytes", profile.limit_bytes},
               {"device_bytes", profile.device_bytes},
               {"report", Json::parse(to_json(profile.report))}};
  for (std::size_t i = 0; i < kCategories; ++i) json["categories"].push_back(to_string(static_cast<Category>(i)));
  add_intervals(profile, json);
  add_events(profile, json);
  json["curve"] = Json::array();
  for (const CurvePoint& point : profile.curve)
    json["curve"].push_back(
        {{"batch", point.batch}, {"peak_bytes", point.peak_bytes}, {"by_category", point.by_category.bytes}});
  return json;
}

}  // namespace

nlohmann::ordered_json about_json(const MemoryProfile& profile) {
  nlohmann::ordered_json about = {{"model", profile.model},
                                  {"batch", profile.step.batch},
                                  {"precision", to_string(profile.step.precision)},
                                  {"recompute", to_string(profile.step.recompute)},
                                  {"device", to_string(profile.device)},
                                  {"accumulate", profile.accumulate}};
  if (!profile.target.empty()) about["target"] = profile.target;
  return about;
}

std::string report_html(const MemoryProfile& profile) {
  const std::string title = fmt::format("Memory of {} on {}", profile.model,
                                        profile.target.empty() ? to_string(profile.device) : profile.target);
  return filled(page_part("report.html"), {{"title", escaped(title)},
                                           {"headline", escaped(profile.headline)},
                                           {"style", page_part("report.css")},
                                           {"theme", page_part("theme.js")},
                                           {"script", page_part("report.js")},
                                           {"data", safe_in_script(json_text(printable_texts(report_data(profile))))}});
}

}  // namespace bantam::cli
