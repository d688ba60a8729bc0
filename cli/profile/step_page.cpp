// The page of a step's profile: its JSON, and the slices of one step as columns.
#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/cli/pages/page_parts.h"
#include "bantam/cli/pages/page_text.h"
#include "bantam/cli/profile/names.h"
#include "bantam/cli/profile/step_files.h"
#include "bantam/cli/profile/step_profile_report.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The recorded step of median length.
std::size_t median_update(const StepRecording& recording) {
  std::vector<std::size_t> order(recording.updates.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {},
                    [&](std::size_t i) { return recording.updates[i].end_ns - recording.updates[i].begin_ns; });
  return order[order.size() / 2];
}

/// One step's slices and gaps, in microseconds since its beginning.
class SliceColumns {
 public:
  explicit SliceColumns(const RecordedUpdate& update) : origin_(update.begin_ns) {
    for (const char* column : {"begin", "end", "operation", "kernel", "phase", "gap"}) columns_[column] = Json::array();
    std::int64_t covered = update.begin_ns;
    for (const StepSlice& slice : update.slices) {
      if (slice.begin_ns > covered) add(covered, slice.begin_ns, slice, true);
      add(slice.begin_ns, slice.end_ns, slice, false);
      covered = slice.end_ns;
    }
  }
  void write_to(Json& json) && {
    json["slices"] = std::move(columns_);
    json["operations"] = operations_.all();
    json["kernels"] = kernels_.all();
  }

 private:
  void add(std::int64_t begin, std::int64_t end, const StepSlice& slice, bool gap) {
    columns_["begin"].push_back(static_cast<double>(begin - origin_) / 1e3);
    columns_["end"].push_back(static_cast<double>(end - origin_) / 1e3);
    columns_["operation"].push_back(operations_(slice.owner));
    columns_["kernel"].push_back(
        kernels_(slice.device_kernel.empty() ? slice.kernel : readable_kernel(slice.device_kernel)));
    columns_["phase"].push_back(static_cast<int>(slice.phase));
    columns_["gap"].push_back(gap ? 1 : 0);
  }
  std::int64_t origin_;
  Json columns_;
  Names operations_, kernels_;
};

/// Lists the threads' spans in the timeline: where the calling one waits, and where others work.
Json spans_json(const StepRecording& recording, const RecordedUpdate& update) {
  Json spans = Json::array();
  for (const PartSpan& span : recording.threads) {
    if (span.begin_ns < update.begin_ns || span.end_ns > update.end_ns) continue;
    if (span.thread == 0 && !span.waits) continue;
    spans.push_back({{"thread", span.thread},
                     {"waits", span.waits},
                     {"begin", static_cast<double>(span.begin_ns - update.begin_ns) / 1e3},
                     {"end", static_cast<double>(span.end_ns - update.begin_ns) / 1e3}});
  }
  return spans;
}

Json page_data(const StepProfile& profile) {
  const std::size_t median = median_update(profile.recording);
  const RecordedUpdate& update = profile.recording.updates[median];
  Json json = {{"profile", json_of(profile)},
               {"method", method_words(profile.recording.method, profile.recording.why_not_traced)},
               {"slices_step", profile.options.first_step + static_cast<std::int64_t>(median)},
               {"slices_us", static_cast<double>(update.end_ns - update.begin_ns) / 1e3},
               {"spans", spans_json(profile.recording, update)}};
  SliceColumns(update).write_to(json);
  return json;
}

}  // namespace

std::string step_page(const StepProfile& profile) {
  const std::string title = fmt::format("A step of {} on {}", profile.model, to_string(profile.device));
  return filled(page_part("step_page.html"),
                {{"title", escaped(title)},
                 {"headline", escaped(profile.headline)},
                 {"style", page_part("step_page.css")},
                 {"theme", page_part("theme.js")},
                 {"script", page_part("step_page.js")},
                 {"data", safe_in_script(json_text(printable_texts(page_data(profile))))}});
}

}  // namespace bantam::cli
