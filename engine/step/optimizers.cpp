// Readers of the built-in optimizers' options.
#include "bantam/engine/step/optimizer.h"

namespace bantam {
namespace {

constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};
constexpr NumberRange kShare{.min = 0, .max = 1, .max_open = true};

float number(ConfigMap& options, std::string_view key, NumberRange range, double otherwise) {
  return static_cast<float>(options.number(key, range, otherwise));
}

void read_decay(ConfigMap& options, OptimizerOptions& optimizer, double otherwise) {
  optimizer.weight_decay = number(options, "weight_decay", kNotNegative, otherwise);
  optimizer.decay_biases = options.boolean("decay_biases", true);
}

template <OptimizerKind kKind>
OptimizerOptions read_adam(ConfigMap& options) {
  OptimizerOptions optimizer{.kind = kKind};
  optimizer.learning_rate = number(options, "learning_rate", kNotNegative, 1e-3);
  optimizer.beta1 = number(options, "beta1", kShare, 0.9);
  optimizer.beta2 = number(options, "beta2", kShare, 0.999);
  optimizer.epsilon = number(options, "epsilon", {.min = 0, .max = 1, .min_open = true}, 1e-7);
  read_decay(options, optimizer, kKind == OptimizerKind::adamw ? 0.004 : 0.0);
  return optimizer;
}

OptimizerOptions read_sgd(ConfigMap& options) {
  OptimizerOptions optimizer;
  optimizer.learning_rate = number(options, "learning_rate", kNotNegative, 0.01);
  optimizer.momentum = number(options, "momentum", kShare, 0.0);
  optimizer.kind = options.boolean("nesterov", false) ? OptimizerKind::sgd_nesterov : OptimizerKind::sgd;
  read_decay(options, optimizer, 0.0);
  options.finish();  // first: what is wrong between two keys may be that one of them is misspelt
  if (optimizer.kind == OptimizerKind::sgd_nesterov && optimizer.momentum == 0.0f)
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
  if (!section.has("optimizer")) (void)section.text("optimizer", "adam");
  return read_registered(optimizers(), section.node("optimizer"));
}

}  // namespace bantam
