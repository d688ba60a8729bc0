// Reads `checkpoint:`.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

std::vector<Duration> read_every(ConfigMap& map) {
  const ConfigNode node = map.node(
      {"every",
       "When a run is saved on its way: one duration, or several, whichever comes first. Updates and epochs count from "
       "the run's beginning, an epoch with its evaluation; time counts from the last checkpoint. off: only at the end.",
       "500updates | [2epochs, 1h] | off"},
      std::vector<std::string>{"1epoch", "10min"});
  if (node.is_text("off")) return {};
  std::vector<Duration> every;
  const auto add = [&every](const ConfigNode& item) { every.push_back(item.as_duration({.min = 1})); };
  if (node.is_list())
    std::ranges::for_each(node.items(), add);
  else
    add(node);
  return every;
}

std::optional<WatchedMetric> read_best(ConfigMap& map, const TrainConfig& train) {
  const ConfigNode node =
      map.node({"best",
                "Keep the weights of the best evaluation, too, as weights-best.safetensors. Each one "
                "that is better than all before is a checkpoint. off: the last weights only.",
                "{metric: accuracy, mode: max} | off"},
               "off");
  if (node.is_text("off")) {
    if (!train.restore_best) return std::nullopt;
    return WatchedMetric{.metric = train.stop_early->metric, .larger = train.stop_early->larger};
  }
  if (!train.evaluate) node.fail("checkpoint.best needs evaluations; train.evaluate is false");
  if (node.is_scalar() && !node.is_described())
    node.fail("checkpoint.best: expected off or a map such as {metric: accuracy}");
  ConfigMap options = node.as_map();
  const WatchedMetric otherwise = watched_by_default(train);
  WatchedMetric best =
      read_watched_metric(options, train, "checkpoint.best", otherwise.metric, otherwise.larger ? "loss" : "mse");
  options.finish();
  if (train.restore_best && (best.metric != train.stop_early->metric || best.larger != train.stop_early->larger))
    node.fail(
        fmt::format("train.stop_early.restore_best needs the weights of the best {}; checkpoint.best keeps those of "
                    "the best {}",
                    train.stop_early->metric, best.metric));
  return best;
}

}  // namespace

CheckpointConfig read_checkpoint_config(ConfigMap& root, const TrainConfig& train) {
  ConfigMap map = root.map_or_empty(
      {"checkpoint", "When a run is saved on its way, so that --resume goes on from there, to the same bits."});
  map.describe("When a run is saved on its way. What a checkpoint is, and how to resume from one: CHECKPOINTS.md.",
               "checkpoint:\n  every: [1epoch, 10min]\n  min_interval: 30s\n  keep_last: 2\n"
               "  best: {metric: accuracy, mode: max}");
  CheckpointConfig config;
  config.every = read_every(map);
  config.min_seconds =
      map.duration({"min_interval", "Least time between two checkpoints: one that is due sooner waits.", "5min"},
                   {.updates = false, .epochs = false}, Duration::seconds(30))
          .count;
  config.keep_last = map.integer({"keep_last", "Checkpoints that are kept: older ones are removed.", "5"},
                                 {.min = 1, .max = 1'000'000}, 2);
  config.best = read_best(map, train);
  map.finish();
  return config;
}

}  // namespace bantam::run
