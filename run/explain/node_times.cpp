// Slices and gaps of recorded updates, added up.
#include "bantam/run/explain/node_times.h"

#include <map>
#include <utility>

namespace bantam::run {
namespace {

double seconds(std::int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

/// Adds an update's gaps to `times`: those before its first kernel and after its last count as between updates.
void add_gaps(const RecordedUpdate& update, StepTimes& times) {
  std::int64_t covered = update.begin_ns;
  for (std::size_t i = 0; i < update.slices.size(); ++i) {
    (i == 0 ? times.between_updates : times.between_kernels) += seconds(update.slices[i].begin_ns - covered);
    covered = update.slices[i].end_ns;
  }
  times.between_updates += seconds(update.end_ns - covered);
  times.step_seconds += seconds(update.end_ns - update.begin_ns);
}

}  // namespace

StepTimes add_up(const StepRecording& recording) {
  StepTimes times{.untraced_seconds = recording.plain_seconds,
                  .updates = static_cast<std::int64_t>(recording.updates.size()),
                  .method = recording.method,
                  .why_not_traced = recording.why_not_traced};
  std::map<std::pair<std::string, kernels::KernelPhase>, std::size_t> places;
  const std::vector<const RecordedUpdate*> updates = recording.typical_updates();
  for (const RecordedUpdate* update : updates) {
    for (const StepSlice& slice : update->slices) {
      const auto [place, is_new] = places.try_emplace({slice.owner, slice.phase}, times.nodes.size());
      if (is_new) times.nodes.push_back({slice.owner, slice.phase, 0});
      times.nodes[place->second].seconds += seconds(slice.end_ns - slice.begin_ns);
    }
    add_gaps(*update, times);
  }
  const auto count = static_cast<double>(updates.size());
  for (NodeTime& node : times.nodes) node.seconds /= count;
  for (double* sum : {&times.between_kernels, &times.between_updates, &times.step_seconds}) *sum /= count;
  return times;
}

StepTimes measure_node_times(TrainingStep& step, const Batch& batch, std::int64_t accumulate) {
  return add_up(record_updates(step, batch, {.accumulate = accumulate}));
}

}  // namespace bantam::run
