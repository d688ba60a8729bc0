// RMSprop.
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/kernel_rule.h"

namespace bantam {

RulePtr rmsprop(const RmsPropOptions& o) {
  using enum kernels::UpdateKind;
  require_option(o.alpha >= 0.0f && o.alpha < 1.0f, "alpha must be in [0, 1)", o.alpha);
  const bool has_momentum = o.momentum > 0.0f || o.scheduled_momentum;
  return std::make_shared<KernelRule>(
      KernelRule::Facts{.kind = "rmsprop",
                        .kernel = o.centered ? (has_momentum ? rmsprop_centered_momentum : rmsprop_centered)
                                             : (has_momentum ? rmsprop_momentum : kernels::UpdateKind::rmsprop),
                        .values = {o.learning_rate, o.weight_decay, o.momentum},
                        .constants = {.beta2 = o.alpha, .epsilon = o.epsilon},
                        .momentum_name = "momentum",
                        .has_momentum = has_momentum});
}

OptimizerOptions read_rmsprop(ConfigMap& options) {
  options.describe(
      "RMSprop (Hinton 2012) as PyTorch computes it. Keeps one float32 value a weight, one more with momentum, and one "
      "more where it is centered.",
      "rmsprop: {learning_rate: 0.01, alpha: 0.9, momentum: 0.9}");
  OptimizerReader reader(options);
  RmsPropOptions rmsprop;
  rmsprop.learning_rate = reader.learning_rate(0.01);
  rmsprop.alpha =
      reader.share({"alpha", "Share of the mean of squared gradients that stays at each update.", "0.9"}, 0.99);
  rmsprop.momentum = reader.momentum("Share of the velocity that stays at each update; 0: none.", 0.0);
  rmsprop.scheduled_momentum = reader.momentum_is_scheduled();
  rmsprop.centered = options.boolean(
      {"centered",
       "Divides by the standard deviation of the gradients in place of the root of their squares' mean (Graves 2013).",
       "true"},
      false);
  rmsprop.epsilon = reader.epsilon("Added to the root, against division by 0.", 1e-8);
  rmsprop.weight_decay = reader.weight_decay(false, 0.0);
  return reader.with(bantam::rmsprop(rmsprop));
}

}  // namespace bantam
