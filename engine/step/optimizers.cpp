// Readers of the built-in optimizers' options.
#include "bantam/engine/step/optimizer.h"

namespace bantam {
namespace {

constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};
constexpr NumberRange kShare{.min = 0, .max = 1, .max_open = true};

float number(ConfigMap& options, ConfigKey key, NumberRange range, double otherwise) {
  return static_cast<float>(options.number(key, range, otherwise));
}

constexpr std::string_view kScheduled = "0.1 | {schedule: cosine, peak: 0.1, warmup: 5epochs}";

void read_rate(ConfigMap& options, OptimizerOptions& optimizer, double otherwise) {
  ScheduledNumber rate = read_scheduled_number(options,
                                               {"learning_rate",
                                                "Step size: a number, or {schedule: NAME, peak: NUMBER} with the "
                                                "schedule's options beside them (Schedules, below).",
                                                kScheduled},
                                               kNotNegative, otherwise);
  optimizer.learning_rate = rate.value;
  optimizer.schedules.learning_rate = std::move(rate.schedule);
}

void read_decay(ConfigMap& options, OptimizerOptions& optimizer, double otherwise) {
  ScheduledNumber decay = read_scheduled_number(
      options,
      {"weight_decay",
       "Pull of the weights towards 0. sgd, adam: added to the gradient as this times the weight (L2, as in PyTorch); "
       "adamw: each update shrinks the weight by this times the learning rate (decoupled). 0: none. It may have a "
       "schedule, as the learning rate.",
       "5.0e-4 | {schedule: linear, peak: 0.01, final: 0.1}"},
      kNotNegative, otherwise);
  optimizer.weight_decay = decay.value;
  optimizer.schedules.weight_decay = std::move(decay.schedule);
  optimizer.decay_biases = options.boolean(
      {"decay_biases",
       "Whether weight decay acts on biases and on scale and shift of norms, too. false: on weights only, as most "
       "recipes for convolutional networks do."},
      true);
}

template <OptimizerKind kKind>
OptimizerOptions read_adam(ConfigMap& options) {
  OptimizerOptions optimizer{.kind = kKind};
  if (kKind == OptimizerKind::adam)
    options.describe("Adam (Kingma and Ba 2015). Keeps two float32 values a weight.", "adam: {learning_rate: 1.0e-3}");
  else
    options.describe("Adam with decoupled weight decay (Loshchilov and Hutter 2019).",
                     "adamw: {learning_rate: 1.0e-3, weight_decay: 0.05, decay_biases: false}");
  read_rate(options, optimizer, 1e-3);
  ScheduledNumber beta1 = read_scheduled_number(
      options,
      {"beta1", "Share of the mean of gradients that stays at each update. It may have a schedule.",
       "0.95 | {schedule: one_cycle, start: 0.95, peak: 0.85, final: 0.95}"},
      kShare, 0.9);
  optimizer.beta1 = beta1.value;
  optimizer.schedules.momentum = std::move(beta1.schedule);
  optimizer.beta2 =
      number(options, {"beta2", "Share of the mean of squared gradients that stays at each update."}, kShare, 0.999);
  optimizer.epsilon =
      number(options,
             {"epsilon", "Added to the root of the squared gradients' mean, against division by 0. PyTorch has 1e-8."},
             {.min = 0, .max = 1, .min_open = true}, 1e-7);
  read_decay(options, optimizer, kKind == OptimizerKind::adamw ? 0.004 : 0.0);
  return optimizer;
}

OptimizerOptions read_sgd(ConfigMap& options) {
  OptimizerOptions optimizer;
  options.describe("Stochastic gradient descent, plain or with momentum (one float32 value a weight).",
                   "sgd: {learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 5.0e-4}");
  read_rate(options, optimizer, 0.01);
  ScheduledNumber momentum = read_scheduled_number(
      options,
      {"momentum", "Share of the velocity that stays at each update; 0: plain descent. It may have a schedule.",
       "0.9 | {schedule: one_cycle, start: 0.95, peak: 0.85, final: 0.95}"},
      kShare, 0.0);
  optimizer.momentum = momentum.value;
  optimizer.schedules.momentum = std::move(momentum.schedule);
  optimizer.kind =
      options.boolean({"nesterov", "Nesterov's momentum: the step looks ahead. Needs a momentum above 0.", "true"},
                      false)
          ? OptimizerKind::sgd_nesterov
          : OptimizerKind::sgd;
  read_decay(options, optimizer, 0.0);
  options.finish();  // first: what is wrong between two keys may be that one of them is misspelt
  if (optimizer.kind == OptimizerKind::sgd_nesterov && optimizer.momentum == 0.0f && !optimizer.schedules.momentum)
    options.node("nesterov").fail("nesterov: true needs a momentum above 0");
  return optimizer;
}

}  // namespace

Registry<Reader<OptimizerOptions>>& optimizers() {
  static Registry<Reader<OptimizerOptions>> table(
      "optimizer",
      {{"adam", read_adam<OptimizerKind::adam>}, {"adamw", read_adam<OptimizerKind::adamw>}, {"sgd", read_sgd}});
  return table;
}

OptimizerOptions read_optimizer(ConfigMap& section) {
  return read_registered(
      optimizers(), section.node({"optimizer", "How weights follow from gradients: a name, or a name with its options.",
                                  "adam | {sgd: {learning_rate: 0.1, momentum: 0.9}}"},
                                 "adam"));
}

}  // namespace bantam
