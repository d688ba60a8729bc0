// Reads `train.stop_early`, and what evaluations are compared by there and elsewhere.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

std::vector<std::string> metric_names(const TrainConfig& train) {
  std::vector<std::string> names = {"loss"};
  for (const MetricPtr& metric : train.loss.metrics) names.emplace_back(metric->kind());
  return names;
}

WatchedMetric read_watched_metric(ConfigMap& options, const TrainConfig& train, std::string_view where,
                                  std::string_view otherwise, std::string_view example) {
  WatchedMetric watched{
      .metric = options.text({"metric", "loss, or one of train.metrics, of the validation samples.", example},
                             std::string(otherwise))};
  const std::vector<std::string> names = metric_names(train);
  if (std::ranges::find(names, watched.metric) == names.end())
    options.node("metric").fail(
        fmt::format("{}.metric: expected one of {}, got '{}'", where, fmt::join(names, ", "), watched.metric));
  const bool is_error =
      watched.metric == "loss" || std::ranges::any_of(train.loss.metrics, [&](const MetricPtr& metric) {
        return metric->kind() == watched.metric && metric->smaller_is_better();
      });
  watched.larger = options.choice({"mode", "Whether larger or smaller values are better.", "max",
                                   "min for loss, mse and mae, else max"},
                                  {"max", "min"}, is_error ? "min" : "max") == "max";
  return watched;
}

void read_stop_early(ConfigMap& train, TrainConfig& config) {
  const ConfigNode node =
      train.node({"stop_early",
                  "End the run once the evaluations have stopped improving: it is then finished, and exits with 0. "
                  "off: train all epochs.",
                  "{metric: loss, patience: 5} | off"},
                 "off");
  if (node.is_text("off")) return;
  if (!config.evaluate) node.fail("train.stop_early needs an evaluation after each epoch; train.evaluate is false");
  if (config.evaluate_every.unit == Duration::Unit::updates)
    node.fail("train.stop_early counts the evaluations at the ends of epochs: train.evaluate.every must be in epochs");
  ConfigMap options = node.as_map();
  const WatchedMetric watched = read_watched_metric(options, config, "train.stop_early", "loss", "accuracy");
  EarlyStopOptions stop{.metric = watched.metric, .larger = watched.larger};
  stop.patience =
      options.integer({"patience", "The run ends after this many evaluations in a row without improvement.", "10"},
                      {.min = 1, .max = 1'000'000}, 5);
  stop.min_delta = options.number(
      {"min_delta", "An improvement is a value that is better than the best by more than this.", "0.001"},
      {.min = 0, .max = 1e30}, 0.0);
  config.restore_best =
      options.boolean({"restore_best",
                       "The run's weights.safetensors are those of the best evaluation, not the last ones, once it has "
                       "ended. Sets checkpoint.best to the same metric where that is off."},
                      false);
  options.finish();
  config.stop_early = stop;
}

}  // namespace bantam::run
