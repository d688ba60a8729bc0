// Reads `train.stop_early`.
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

bool is_error(const std::string& name, const TrainConfig& train) {
  if (name == "loss") return true;
  const auto& metrics = train.loss.metrics;
  const auto found = std::ranges::find_if(metrics, [&](const MetricPtr& metric) { return metric->kind() == name; });
  return found != metrics.end() && (*found)->smaller_is_better();
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
  EarlyStopOptions stop{
      .metric =
          options.text({"metric", "loss, or one of train.metrics, of the validation samples.", "accuracy"}, "loss")};
  const std::vector<std::string> names = metric_names(config);
  if (std::ranges::find(names, stop.metric) == names.end())
    options.node("metric").fail(
        fmt::format("train.stop_early.metric: expected one of {}, got '{}'", fmt::join(names, ", "), stop.metric));
  stop.larger = options.choice({"mode", "Whether larger or smaller values are better.", "max",
                                "min for loss, mse and mae, else max"},
                               {"max", "min"}, is_error(stop.metric, config) ? "min" : "max") == "max";
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
