// Stochastic gradient descent, plain and with momentum.
#include "bantam/base/error.h"
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/kernel_rule.h"

namespace bantam {

RulePtr sgd(const SgdOptions& o) {
  using enum kernels::UpdateKind;
  require_option(o.dampening >= 0.0f && o.dampening <= 1.0f, "dampening must be in [0, 1]", o.dampening);
  require_option(o.dampening == 0.0f || !o.nesterov, "Nesterov's momentum has no dampening", o.dampening);
  const bool has_momentum = o.momentum > 0.0f || o.scheduled_momentum;
  return std::make_shared<KernelRule>(KernelRule::Facts{.kind = "sgd",
                                                        .kernel = !has_momentum        ? kernels::UpdateKind::sgd
                                                                  : o.nesterov         ? sgd_nesterov
                                                                  : o.dampening > 0.0f ? sgd_dampened
                                                                                       : sgd_momentum,
                                                        .values = {o.learning_rate, o.weight_decay, o.momentum},
                                                        .constants = {.beta3 = o.dampening},
                                                        .momentum_name = "momentum",
                                                        .has_momentum = has_momentum});
}

OptimizerOptions read_sgd(ConfigMap& options) {
  options.describe("Stochastic gradient descent, plain or with momentum (one float32 value a weight).",
                   "sgd: {learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 5.0e-4}");
  OptimizerReader reader(options);
  SgdOptions sgd;
  sgd.learning_rate = reader.learning_rate(0.01);
  sgd.momentum = reader.momentum("Share of the velocity that stays at each update; 0: plain descent.", 0.0);
  sgd.scheduled_momentum = reader.momentum_is_scheduled();
  sgd.nesterov = options.boolean(
      {"nesterov", "Nesterov's momentum: the step looks ahead. Needs a momentum above 0.", "true"}, false);
  sgd.dampening = static_cast<float>(options.number(
      {"dampening",
       "Share of each gradient, after the first, that does not enter the velocity (PyTorch's). Needs a momentum "
       "above 0, and not Nesterov's."},
      {.min = 0, .max = 1}, 0.0));
  sgd.weight_decay = reader.weight_decay(false, 0.0);
  options.finish();  // first: what is wrong between two keys may be that one of them is misspelt
  const bool has_momentum = sgd.momentum > 0.0f || sgd.scheduled_momentum;
  if (sgd.nesterov && !has_momentum) options.node("nesterov").fail("nesterov: true needs a momentum above 0");
  if (sgd.dampening > 0.0f && sgd.nesterov) options.node("dampening").fail("Nesterov's momentum has no dampening");
  if (sgd.dampening > 0.0f && !has_momentum) options.node("dampening").fail("dampening needs a momentum above 0");
  return reader.with(bantam::sgd(sgd));
}

}  // namespace bantam
