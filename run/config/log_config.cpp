// Reads `log:`.
#include "bantam/run/config/run_config.h"

namespace bantam::run {

LogConfig read_log_config(ConfigMap& root) {
  ConfigMap map = root.map_or_empty({"log", "What a run writes for people beside metrics.jsonl."});
  map.describe("What a run writes for people beside metrics.jsonl. No key of it changes a bit of the training.",
               "log:\n  tensorboard: true\n  histograms: 100");
  LogConfig config;
  config.tensorboard = map.boolean(
      {"tensorboard",
       "Also write the run's tensorboard/, for `tensorboard --logdir RUN`: all numbers of metrics.jsonl, histograms, "
       "pictures of samples, confusion matrices, hyperparameters and the graph.",
       "true"},
      false);
  config.histograms = map.integer(
      {"histograms",
       "Updates between two histograms of every weight and gradient, which go to histograms.jsonl: about 1 KB a tensor "
       "each. They need host memory for a copy of weights and gradients. 0: none.",
       "100"},
      {.min = 0, .max = 1'000'000'000}, 0);
  config.images = map.integer(
      {"images", "With tensorboard: so many held-out and so many training samples, as the network sees them.", "8"},
      {.min = 0, .max = 1024}, 16);
  map.finish();
  return config;
}

}  // namespace bantam::run
