// Reads `checkpoint:`.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

std::vector<Duration> read_every(ConfigMap& map) {
  if (!map.has("every")) (void)map.texts("every", {"1epoch", "10min"});
  const ConfigNode node = map.node("every");
  if (node.is_text("off")) return {};
  std::vector<Duration> every;
  const auto add = [&every](const ConfigNode& item) { every.push_back(item.as_duration({.min = 1})); };
  if (node.is_list())
    std::ranges::for_each(node.items(), add);
  else
    add(node);
  return every;
}

/// What an evaluation tells, by name.
std::vector<std::string> metric_names(const TrainConfig& train) {
  std::vector<std::string> names = {"loss"};
  for (const MetricPtr& metric : train.loss.metrics) names.emplace_back(metric->kind());
  return names;
}

std::optional<CheckpointConfig::Best> read_best(ConfigMap& map, const TrainConfig& train) {
  if (!map.has("best")) (void)map.text("best", "off");
  const ConfigNode node = map.node("best");
  if (node.is_text("off")) return std::nullopt;
  if (!train.evaluate) node.fail("checkpoint.best needs an evaluation after each epoch; train.evaluate is false");
  ConfigMap options = node.as_map();
  CheckpointConfig::Best best{.metric = options.text("metric", "accuracy")};
  const std::vector<std::string> names = metric_names(train);
  if (std::ranges::find(names, best.metric) == names.end())
    options.node("metric").fail(
        fmt::format("checkpoint.best.metric: expected one of {}, got '{}'", fmt::join(names, ", "), best.metric));
  best.larger = options.choice("mode", {"max", "min"}, best.metric == "loss" ? "min" : "max") == "max";
  options.finish();
  return best;
}

}  // namespace

CheckpointConfig read_checkpoint_config(ConfigMap& root, const TrainConfig& train) {
  ConfigMap map = root.map_or_empty("checkpoint");
  CheckpointConfig config;
  config.every = read_every(map);
  config.min_seconds = map.duration("min_interval", {.updates = false, .epochs = false}, Duration::seconds(30)).count;
  config.keep_last = map.integer("keep_last", {.min = 1, .max = 1'000'000}, 2);
  config.best = read_best(map, train);
  map.finish();
  return config;
}

}  // namespace bantam::run
