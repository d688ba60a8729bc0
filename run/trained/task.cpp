// Tasks by losses.
#include "bantam/run/trained/task.h"

#include <algorithm>
#include <array>
#include <vector>

namespace bantam::run {

std::string_view to_string(Task task) {
  constexpr std::array<std::string_view, 5> kNames = {"classes", "multi_label", "segmentation", "masks", "values"};
  return kNames[static_cast<std::size_t>(task)];
}

bool reads_labels(const RunConfig& config) {
  const std::vector<TensorFacts> reads = config.train.loss.loss->targets(config.model.graph.output_shape());
  return std::ranges::find(reads, kLabels, &TensorFacts::name) != reads.end();
}

Task task_of(const RunConfig& config) {
  const bool one_place = config.model.graph.output_shape().rank() <= 1;
  const OutputKind kind = config.train.loss.loss->output_kind();
  if (kind == OutputKind::softmax || reads_labels(config) || has_one_class(config))
    return one_place ? Task::classes : Task::segmentation;
  if (kind == OutputKind::sigmoid) return one_place ? Task::multi_label : Task::masks;
  return Task::values;
}

}  // namespace bantam::run
