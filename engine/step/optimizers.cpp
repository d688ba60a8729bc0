// Readers of the built-in optimizers' options.
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/step/optimizer.h"
#include "bantam/engine/step/rule_values.h"

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
       "Pull of the weights towards 0. sgd, adam, rmsprop: added to the gradient as this times the weight (L2, as in "
       "PyTorch); adamw, lion, lamb, muon: each update shrinks the weight by this times the learning rate "
       "(decoupled). 0: none. It may have a schedule, as the learning rate.",
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

/// `meaning` must be a whole sentence.
void read_momentum(ConfigMap& options, OptimizerOptions& optimizer, std::string_view meaning, double otherwise) {
  const std::string whole = std::string(meaning) + " It may have a schedule.";
  ScheduledNumber momentum = read_scheduled_number(
      options, {"momentum", whole, "0.9 | {schedule: one_cycle, start: 0.95, peak: 0.85, final: 0.95}"}, kShare,
      otherwise);
  optimizer.momentum = momentum.value;
  optimizer.schedules.momentum = std::move(momentum.schedule);
}

void read_beta1(ConfigMap& options, OptimizerOptions& optimizer, std::string_view meaning) {
  const std::string whole = std::string(meaning) + " It may have a schedule.";
  ScheduledNumber beta1 = read_scheduled_number(
      options, {"beta1", whole, "0.95 | {schedule: one_cycle, start: 0.95, peak: 0.85, final: 0.95}"}, kShare, 0.9);
  optimizer.beta1 = beta1.value;
  optimizer.schedules.momentum = std::move(beta1.schedule);
}

void read_betas(ConfigMap& options, OptimizerOptions& optimizer) {
  read_beta1(options, optimizer, "Share of the mean of gradients that stays at each update.");
  optimizer.beta2 =
      number(options, {"beta2", "Share of the mean of squared gradients that stays at each update."}, kShare, 0.999);
}

void read_epsilon(ConfigMap& options, OptimizerOptions& optimizer, const char* meaning, double otherwise) {
  optimizer.epsilon = number(options, {"epsilon", meaning}, {.min = 0, .max = 1, .min_open = true}, otherwise);
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
  read_betas(options, optimizer);
  read_epsilon(options, optimizer,
               "Added to the root of the squared gradients' mean, against division by 0. PyTorch has 1e-8.", 1e-7);
  read_decay(options, optimizer, kKind == OptimizerKind::adamw ? 0.004 : 0.0);
  return optimizer;
}

OptimizerOptions read_sgd(ConfigMap& options) {
  OptimizerOptions optimizer;
  options.describe("Stochastic gradient descent, plain or with momentum (one float32 value a weight).",
                   "sgd: {learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 5.0e-4}");
  read_rate(options, optimizer, 0.01);
  read_momentum(options, optimizer, "Share of the velocity that stays at each update; 0: plain descent.", 0.0);
  optimizer.kind =
      options.boolean({"nesterov", "Nesterov's momentum: the step looks ahead. Needs a momentum above 0.", "true"},
                      false)
          ? OptimizerKind::sgd_nesterov
          : OptimizerKind::sgd;
  optimizer.dampening =
      number(options,
             {"dampening",
              "Share of each gradient, after the first, that does not enter the velocity (PyTorch's). Needs a momentum "
              "above 0, and not Nesterov's."},
             {.min = 0, .max = 1}, 0.0);
  read_decay(options, optimizer, 0.0);
  options.finish();  // first: what is wrong between two keys may be that one of them is misspelt
  if (optimizer.kind == OptimizerKind::sgd_nesterov && optimizer.momentum == 0.0f && !optimizer.schedules.momentum)
    options.node("nesterov").fail("nesterov: true needs a momentum above 0");
  if (optimizer.dampening > 0.0f && optimizer.kind == OptimizerKind::sgd_nesterov)
    options.node("dampening").fail("Nesterov's momentum has no dampening");
  if (optimizer.dampening > 0.0f && optimizer.momentum == 0.0f && !optimizer.schedules.momentum)
    options.node("dampening").fail("dampening needs a momentum above 0");
  return optimizer;
}

OptimizerOptions read_rmsprop(ConfigMap& options) {
  OptimizerOptions optimizer{.kind = OptimizerKind::rmsprop};
  options.describe(
      "RMSprop (Hinton 2012) as PyTorch computes it. Keeps one float32 value a weight, one more with momentum, and one "
      "more where it is centered.",
      "rmsprop: {learning_rate: 0.01, alpha: 0.9, momentum: 0.9}");
  read_rate(options, optimizer, 0.01);
  optimizer.alpha = number(
      options, {"alpha", "Share of the mean of squared gradients that stays at each update.", "0.9"}, kShare, 0.99);
  read_momentum(options, optimizer, "Share of the velocity that stays at each update; 0: none.", 0.0);
  optimizer.centered = options.boolean(
      {"centered",
       "Divides by the standard deviation of the gradients in place of the root of their squares' mean (Graves 2013).",
       "true"},
      false);
  read_epsilon(options, optimizer, "Added to the root, against division by 0.", 1e-8);
  read_decay(options, optimizer, 0.0);
  return optimizer;
}

OptimizerOptions read_lion(ConfigMap& options) {
  OptimizerOptions optimizer{.kind = OptimizerKind::lion};
  options.describe(
      "Lion (Chen et al. 2023): moves each weight by the sign of a mean of gradients. Keeps one float32 value a "
      "weight. "
      "The paper's learning rates are 3 to 10 times smaller than AdamW's, and its weight decay as many times larger.",
      "lion: {learning_rate: 1.0e-4, weight_decay: 0.5, decay_biases: false}");
  read_rate(options, optimizer, 1e-4);
  read_beta1(options, optimizer, "Share of the mean of gradients in the sum whose sign counts.");
  optimizer.beta2 =
      number(options, {"beta2", "Share of the mean of gradients that stays at each update."}, kShare, 0.99);
  read_decay(options, optimizer, 0.0);
  return optimizer;
}

OptimizerOptions read_lamb(ConfigMap& options) {
  OptimizerOptions optimizer{.kind = OptimizerKind::lamb};
  options.describe(
      "LAMB (You et al. 2020), for large batches: Adam's step of each parameter tensor, made as long as the tensor's "
      "norm times the learning rate. Keeps two float32 values a weight.",
      "lamb: {learning_rate: 5.0e-3, weight_decay: 0.01, decay_biases: false}");
  read_rate(options, optimizer, 1e-3);
  read_betas(options, optimizer);
  read_epsilon(options, optimizer, "Added to the root of the squared gradients' mean, against division by 0.", 1e-6);
  read_decay(options, optimizer, 0.0);
  return optimizer;
}

/// Of optional keys, so that configurations without them resolve as they did.
MuonOptions read_newton_schulz(ConfigMap& options) {
  MuonOptions muon;
  const auto steps =
      options.find({"steps", "Newton-Schulz steps an update: more make the matrix more orthogonal.", "3", "5"});
  if (steps) muon.steps = static_cast<int>(steps->as_integer({.min = 1, .max = 10}));
  const auto coefficients = options.find(
      {"coefficients",
       "a, b and c of a step, which moves the matrix's singular values s to a·s + b·s³ + c·s⁵. Refused where one of up "
       "to 1.05 could pass 2 within `steps`.",
       "[3.4445, -4.775, 2.0315]", "Jordan's: [3.4445, -4.775, 2.0315]"});
  if (!coefficients) return muon;
  const std::vector<ConfigNode> items = coefficients->items();
  if (items.size() != muon.coefficients.size())
    coefficients->fail(fmt::format("coefficients are three numbers [a, b, c], got {}", items.size()));
  for (std::size_t i = 0; i < items.size(); ++i)
    muon.coefficients[i] = static_cast<float>(items[i].as_number({.min = -100, .max = 100}));
  try {
    check_muon(muon);
  } catch (const ConfigError& error) {
    coefficients->fail(error.what());
  }
  return muon;
}

/// true: every update; {every: N}.
std::int64_t read_normalize_weights(ConfigMap& options) {
  const auto node = options.find(
      {"normalize_weights",
       "Before an update each matrix is scaled to a Frobenius norm of √rows, so that a rate means the same step "
       "throughout a run. true: before every update; {every: N}: before the first and every N-th after it.",
       "true | {every: 2}", "false"});
  if (!node) return 0;
  if (!node->is_map()) return node->as_boolean() ? 1 : 0;
  ConfigMap inner = node->as_map();
  const std::int64_t every =
      inner.integer({"every", "Updates from one to the next.", "2"}, {.min = 1, .max = std::int64_t{1} << 40});
  inner.finish();
  return every;
}

std::vector<std::string> read_exclude(ConfigMap& options) {
  const auto node = options.find({"exclude",
                                  "Names of parameters of 2 or 4 dimensions (as in train.groups: * is any text, ? one "
                                  "character) that `rest` moves "
                                  "in place of Muon: often the last layer's. Each matches one at least.",
                                  "[head/weight]", "none"});
  return node ? node->as_texts() : std::vector<std::string>();
}

OptimizerOptions read_muon(ConfigMap& options) {
  OptimizerOptions optimizer{.kind = OptimizerKind::muon};
  options.describe(
      "Muon (Jordan 2024): weights of convolutions and dense layers, as matrices of a row an output, move along their "
      "momentum made orthogonal; all other parameters by the optimizer named in `rest`. The matrix products run in the "
      "compute type: float32, or the half type of a mixed precision, with float32 sums. Keeps one float32 value a "
      "weight, and as many for its work.",
      "muon: {learning_rate: 0.02, momentum: 0.95, rest: {adamw: {learning_rate: 1.0e-3}}}");
  read_rate(options, optimizer, 0.02);
  read_momentum(options, optimizer, "Share of the mean of gradients that stays at each update.", 0.95);
  optimizer.nesterov = options.boolean(
      {"nesterov", "Nesterov's momentum: the newest gradient counts once more before the matrix is made orthogonal.",
       "false"},
      true);
  ScheduledNumber decay = read_scheduled_number(
      options,
      {"weight_decay",
       "Each update shrinks the matrices by this times the learning rate (decoupled). 0: none. It may have a schedule.",
       "0.01"},
      kNotNegative, 0.0);
  optimizer.weight_decay = decay.value;
  optimizer.schedules.weight_decay = std::move(decay.schedule);
  optimizer.muon = read_newton_schulz(options);
  optimizer.muon.normalize_every = read_normalize_weights(options);
  optimizer.muon.exclude = read_exclude(options);
  const ConfigNode rest = options.node({"rest",
                                        "What moves all other parameters: biases, norms, depthwise weights, and those "
                                        "in `exclude`. Its learning rate keeps its ratio to "
                                        "Muon's where a schedule moves that.",
                                        "adam | {sgd: {learning_rate: 0.1, momentum: 0.9}}"},
                                       "adamw");
  optimizer.rest = std::make_shared<const OptimizerOptions>(read_registered(optimizers(), rest));
  if (optimizer.rest->kind == OptimizerKind::muon || optimizer.rest->rule)
    rest.fail("muon's rest must be another built-in optimizer");
  if (optimizer.rest->schedules.any()) rest.fail("muon's rest has no schedules of its own: it follows Muon's");
  return optimizer;
}

}  // namespace

Registry<Reader<OptimizerOptions>>& optimizers() {
  static Registry<Reader<OptimizerOptions>> table("optimizer", {{"adam", read_adam<OptimizerKind::adam>},
                                                                {"adamw", read_adam<OptimizerKind::adamw>},
                                                                {"sgd", read_sgd},
                                                                {"rmsprop", read_rmsprop},
                                                                {"lion", read_lion},
                                                                {"lamb", read_lamb},
                                                                {"muon", read_muon}});
  return table;
}

OptimizerOptions read_optimizer(ConfigMap& section) {
  return read_registered(
      optimizers(), section.node({"optimizer", "How weights follow from gradients: a name, or a name with its options.",
                                  "adam | {sgd: {learning_rate: 0.1, momentum: 0.9}}"},
                                 "adam"));
}

}  // namespace bantam
