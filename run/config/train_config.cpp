// Reads `train:`: epochs, loss, metrics, optimizer. Names come from the engine's tables.
#include "bantam/engine/step/optimizer.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

float number(ConfigMap& options, ConfigKey key, NumberRange range, double otherwise) {
  return static_cast<float>(options.number(key, range, otherwise));
}

constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};

void read_loss_scale(ConfigMap scale, OptimizerOptions& optimizer) {
  optimizer.initial_loss_scale =
      number(scale, {"initial", "The scale before the first update.", "1024"}, {.min = 1, .max = 16777216}, 32768);
  optimizer.loss_scale_growth_interval = static_cast<std::int32_t>(
      scale.integer({"growth_interval", "The scale is doubled after this many updates without an overflow.", "1000"},
                    {.min = 1, .max = 1 << 30}, 2000));
  scale.finish();
}

std::int64_t read_log_every(ConfigMap& train) {
  return train
      .duration({"log_every",
                 "Updates a line of the run's metrics.jsonl. The line has the metrics of all updates since the line "
                 "before.",
                 "50"},
                {.min = 1, .epochs = false, .seconds = false}, Duration::updates(1))
      .count;
}

StepMode read_mode(ConfigMap& train, Device device) {
  const std::string mode = train.choice({"mode",
                                         "How steps run. eager: op by op; planned: op by op, in memory that was laid "
                                         "out before the first step; captured: "
                                         "recorded once and replayed as one launch (CUDA graphs). auto: captured on a "
                                         "GPU, else planned. All have the same "
                                         "results.",
                                         "planned"},
                                        {"auto", "eager", "planned", "captured"}, "auto");
  return parse_step_mode(mode, device);
}

}  // namespace

TrainConfig read_train_config(ConfigMap train, Device device) {
  train.describe("How the model is trained.",
                 "train:\n  epochs: 30\n  optimizer:\n    sgd: {learning_rate: 0.05, momentum: 0.9, nesterov: true}\n"
                 "  loss: {softmax_cross_entropy: {label_smoothing: 0.1}}\n  clip_norm: 1.0");
  TrainConfig config;
  config.epochs =
      train.integer({"epochs", "Passes over the training samples.", "10"}, {.min = 1, .max = 1'000'000'000}, 1);
  config.accumulate = train.integer(
      {"accumulate",
       "Batches an update: gradients are averaged over this many before the weights change. The effective batch is "
       "accumulate × batch size, in the memory of one batch.",
       "4"},
      {.min = 1, .max = 1'000'000}, 1);
  config.loss.loss = read_loss(train);
  config.loss.metrics = read_metrics(train);
  config.optimizer = read_optimizer(train);
  config.schedule = read_schedule(train);
  config.callbacks = read_callbacks(train);
  config.optimizer.clip_norm = number(
      train,
      {"clip_norm",
       "Largest norm of the gradients of all weights together: where theirs is larger, they are scaled down to it. "
       "0: no clipping.",
       "1.0"},
      kNotNegative, 0.0);
  read_loss_scale(train.map_or_empty({"loss_scale",
                                      "Of precision mixed_float16: the loss is multiplied by this scale, so that small "
                                      "gradients do not vanish in float16. An update whose gradients overflow is "
                                      "skipped, and the scale is halved."}),
                  config.optimizer);
  config.log_every = read_log_every(train);
  config.evaluate = train.boolean({"evaluate", "Evaluate on the held-out samples after each epoch."}, true);
  read_stop_early(train, config);
  config.max_updates =
      train.integer({"max_updates",
                     "Updates of the whole run, over all epochs and sessions: it ends with the last of "
                     "them, in mid-epoch too, and is saved. 0: as many as the epochs have.",
                     "10000"},
                    {.min = 0}, 0);
  config.max_seconds =
      train
          .duration({"max_time",
                     "Time of one session of training: the run then stops, is saved, and exits with 0; "
                     "--resume goes on with another session. 0: no limit.",
                     "55min"},
                    {.updates = false, .epochs = false}, Duration::seconds(0))
          .count;
  config.mode = read_mode(train, device);
  train.finish();
  return config;
}

}  // namespace bantam::run
