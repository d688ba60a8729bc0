// Plans of the changes that a reader could make, and the sentence.
#include "bantam/run/profile/profile_headline.h"

#include <cmath>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/engine/plan/step_cost.h"

namespace bantam::run {
namespace {

constexpr double kSavingWorthNaming = 0.02;  // of the peak

const char* are_category(Category category) {
  switch (category) {
    case Category::parameter:
      return "are parameters";
    case Category::gradient:
      return "are gradients";
    case Category::optimizer:
      return "is the optimizer's state";
    case Category::activation:
      return "are activations";
    case Category::workspace:
      return "is workspace of single ops";
    case Category::input:
      return "are input batches";
    case Category::other:
      break;
  }
  return "is other memory";
}

bool is_worth_naming(std::uint64_t bytes, std::uint64_t than) {
  return static_cast<double>(bytes) <= (1 - kSavingWorthNaming) * static_cast<double>(than);
}

std::string effect(const PlannedChange& change) {
  return fmt::format("{} ({} time, predicted)", format_byte_size(change.peak_bytes),
                     predicted_percent(change.extra_work, change.estimate, 0));
}

}  // namespace

std::vector<PlannedChange> plan_changes(const RunConfig& config, const StepCase& row) {
  std::vector<PlannedChange> changes;
  const Graph& graph = config.model.graph;
  const DeviceRates rates = rates_of(config, row.precision);
  for (const char* policy : {"cheap", "all"}) {
    StepCase other = row;
    other.recompute = parse_recompute(policy);
    if (to_string(other.recompute) == to_string(row.recompute)) continue;
    const StepPlanOptions step = train_plan_options(config, other);
    changes.push_back({std::string("recompute: ") + policy, step_peak(graph, step), extra_work(graph, step, rates),
                       true, rates.estimate});
  }
  if (row.batch < 2) return changes;
  StepCase half = row;
  half.batch /= 2;
  changes.push_back({fmt::format("a batch of {}", half.batch), step_peak(graph, train_plan_options(config, half))});
  return changes;
}

std::string profile_headline(std::uint64_t peak_bytes, const CategoryBytes& at_peak,
                             const std::vector<PlannedChange>& changes) {
  Category most = Category::other;
  for (std::size_t i = 0; i < kCategories; ++i)
    if (const auto category = static_cast<Category>(i); at_peak[category] > at_peak[most]) most = category;
  std::string text = fmt::format("{:.0f} % of the peak of {} {}",
                                 100.0 * static_cast<double>(at_peak[most]) / static_cast<double>(peak_bytes),
                                 format_byte_size(peak_bytes), are_category(most));
  std::uint64_t least = peak_bytes;  // of what was named
  bool asked_recompute = false;
  for (const PlannedChange& change : changes) {
    asked_recompute = asked_recompute || change.is_recompute;
    if (!change.is_recompute || !is_worth_naming(change.peak_bytes, least)) continue;
    text += fmt::format("{}{}{} {}", least == peak_bytes ? "; " : ", ", change.words,
                        least == peak_bytes ? " would need" : "", effect(change));
    least = change.peak_bytes;
  }
  if (least < peak_bytes) return text + ".";
  if (asked_recompute) text += "; recompute would save next to nothing";
  for (const PlannedChange& change : changes)
    if (!change.is_recompute)
      text += fmt::format("{} {} would need {}", asked_recompute ? "," : ";", change.words,
                          format_byte_size(change.peak_bytes));
  return text + ".";
}

}  // namespace bantam::run
