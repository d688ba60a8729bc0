// Adan.
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/kernel_rule.h"

namespace bantam {

RulePtr adan(const AdanOptions& o) {
  require_option(o.beta3 >= 0.0f && o.beta3 < 1.0f, "beta3 must be in [0, 1)", o.beta3);
  return std::make_shared<KernelRule>(
      KernelRule::Facts{.kind = "adan",
                        .kernel = kernels::UpdateKind::adan,
                        .values = {o.learning_rate, o.weight_decay, o.beta1},
                        .constants = {.beta2 = o.beta2, .epsilon = o.epsilon, .beta3 = o.beta3}});
}

OptimizerOptions read_adan(ConfigMap& options) {
  options.describe(
      "Adan (Xie et al. 2022): Adam with Nesterov's momentum, made of the differences of successive gradients. Keeps "
      "four float32 values a weight. The paper's learning rates are 5 to 10 times AdamW's.",
      "adan: {learning_rate: 5.0e-3, weight_decay: 0.02, decay_biases: false}");
  OptimizerReader reader(options);
  AdanOptions adan;
  adan.learning_rate = reader.learning_rate(1e-3);
  adan.beta1 = reader.beta1("Share of the mean of gradients that stays at each update.", 0.98);
  adan.beta2 = reader.share(
      {"beta2", "Share of the mean of gradients' differences that stays at each update; how far ahead they reach."},
      0.92);
  adan.beta3 = reader.share({"beta3", "Share of the mean of squares that stays at each update."}, 0.99);
  adan.epsilon = reader.epsilon("Added to the root of the squares' mean, against division by 0.", 1e-8);
  adan.weight_decay = reader.weight_decay(true, 0.0);
  return reader.with(bantam::adan(adan));
}

}  // namespace bantam
