// Reads `train:`: epochs, loss, metrics, optimizer. Names come from the engine's tables.
#include "bantam/engine/step/optimizer.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

float number(ConfigMap& options, std::string_view key, NumberRange range, double otherwise) {
  return static_cast<float>(options.number(key, range, otherwise));
}

constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};

}  // namespace

TrainConfig read_train_config(ConfigMap train, Device device) {
  TrainConfig config;
  config.epochs = train.integer("epochs", {.min = 1, .max = 1'000'000'000}, 1);
  config.accumulate = train.integer("accumulate", {.min = 1, .max = 1'000'000}, 1);
  config.loss.loss = read_loss(train);
  config.loss.metrics = read_metrics(train);
  config.optimizer = read_optimizer(train);
  config.schedule = read_schedule(train);
  config.callbacks = read_callbacks(train);
  config.optimizer.clip_norm = number(train, "clip_norm", kNotNegative, 0.0);
  ConfigMap scale = train.map_or_empty("loss_scale");  // of mixed_float16
  config.optimizer.initial_loss_scale = number(scale, "initial", {.min = 1, .max = 16777216}, 32768);
  config.optimizer.loss_scale_growth_interval =
      static_cast<std::int32_t>(scale.integer("growth_interval", {.min = 1, .max = 1 << 30}, 2000));
  scale.finish();
  config.log_every =
      train.duration("log_every", {.min = 1, .epochs = false, .seconds = false}, Duration::updates(1)).count;
  config.evaluate = train.boolean("evaluate", true);
  config.max_updates = train.integer("max_updates", {.min = 0}, 0);
  config.max_seconds = train.duration("max_time", {.updates = false, .epochs = false}, Duration::seconds(0)).count;
  config.mode = parse_step_mode(train.choice("mode", {"auto", "eager", "planned", "captured"}, "auto"), device);
  train.finish();
  return config;
}

}  // namespace bantam::run
