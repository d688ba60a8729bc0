// Reads `train:`: epochs, loss, metrics, optimizer.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

using kernels::OptimizerKind;

float number(ConfigMap& options, std::string_view key, NumberRange range, double otherwise) {
  return static_cast<float>(options.number(key, range, otherwise));
}

constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};
constexpr NumberRange kShare{.min = 0, .max = 1, .max_open = true};

void read_decay(ConfigMap& options, OptimizerOptions& optimizer, double otherwise) {
  optimizer.weight_decay = number(options, "weight_decay", kNotNegative, otherwise);
  optimizer.decay_biases = options.boolean("decay_biases", true);
}

/// adam and adamw; defaults are Keras'.
OptimizerOptions read_adam(ConfigMap& options, OptimizerKind kind) {
  OptimizerOptions optimizer{.kind = kind};
  optimizer.learning_rate = number(options, "learning_rate", kNotNegative, 1e-3);
  optimizer.beta1 = number(options, "beta1", kShare, 0.9);
  optimizer.beta2 = number(options, "beta2", kShare, 0.999);
  optimizer.epsilon = number(options, "epsilon", {.min = 0, .max = 1, .min_open = true}, 1e-7);
  read_decay(options, optimizer, kind == OptimizerKind::adamw ? 0.004 : 0.0);
  return optimizer;
}

OptimizerOptions read_sgd(ConfigMap& options) {
  OptimizerOptions optimizer;
  optimizer.learning_rate = number(options, "learning_rate", kNotNegative, 0.01);
  optimizer.momentum = number(options, "momentum", kShare, 0.0);
  optimizer.kind = options.boolean("nesterov", false) ? OptimizerKind::sgd_nesterov : OptimizerKind::sgd;
  read_decay(options, optimizer, 0.0);
  return optimizer;
}

OptimizerOptions read_optimizer(ConfigMap& train) {
  if (!train.has("optimizer")) (void)train.text("optimizer", "adam");
  const ConfigNode::Named named = train.node("optimizer").as_named();
  const std::vector<std::string> known = {"adam", "adamw", "sgd"};
  if (std::ranges::find(known, named.name) == known.end()) named.options.fail_unknown("optimizer", named.name, known);
  ConfigMap options = named.options.as_map();
  OptimizerOptions optimizer = named.name == "sgd"     ? read_sgd(options)
                               : named.name == "adamw" ? read_adam(options, OptimizerKind::adamw)
                                                       : read_adam(options, OptimizerKind::adam);
  options.finish();  // first: what is wrong between two keys may be that one of them is misspelt
  if (optimizer.kind == OptimizerKind::sgd_nesterov && optimizer.momentum == 0.0f)
    options.node("nesterov").fail("nesterov: true needs a momentum above 0");
  return optimizer;
}

LossOptions read_loss(ConfigMap& train) {
  (void)train.choice("loss", {"softmax_cross_entropy"}, "softmax_cross_entropy");
  return {.label_smoothing = number(train, "label_smoothing", kShare, 0.0)};
}

void read_metrics(ConfigMap& train) {
  for (const std::string& metric : train.texts("metrics", {"accuracy"}))
    if (metric != "accuracy") train.node("metrics").fail(fmt::format("unknown metric '{}'; there is accuracy", metric));
}

}  // namespace

TrainConfig read_train_config(ConfigMap train, Device device) {
  TrainConfig config;
  config.epochs = train.integer("epochs", {.min = 1, .max = 1'000'000'000}, 1);
  config.accumulate = train.integer("accumulate", {.min = 1, .max = 1'000'000}, 1);
  config.loss = read_loss(train);
  read_metrics(train);
  config.optimizer = read_optimizer(train);
  config.optimizer.clip_norm = number(train, "clip_norm", kNotNegative, 0.0);
  ConfigMap scale = train.map_or_empty("loss_scale");  // of mixed_float16
  config.optimizer.initial_loss_scale = number(scale, "initial", {.min = 1, .max = 16777216}, 32768);
  config.optimizer.loss_scale_growth_interval =
      static_cast<std::int32_t>(scale.integer("growth_interval", {.min = 1, .max = 1 << 30}, 2000));
  scale.finish();
  config.log_every =
      train.duration("log_every", {.min = 1, .epochs = false, .seconds = false}, Duration::updates(1)).count;
  config.evaluate = train.boolean("evaluate", true);
  config.mode = parse_step_mode(train.choice("mode", {"auto", "eager", "planned", "captured"}, "auto"), device);
  train.finish();
  return config;
}

}  // namespace bantam::run
