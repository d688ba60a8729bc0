// Lion.
#include "bantam/engine/optimizers/kernel_rule.h"

namespace bantam {

RulePtr lion(const LionOptions& o) {
  return std::make_shared<KernelRule>(KernelRule::Facts{.kind = "lion",
                                                        .kernel = kernels::UpdateKind::lion,
                                                        .values = {o.learning_rate, o.weight_decay, o.beta1},
                                                        .constants = {.beta2 = o.beta2}});
}

OptimizerOptions read_lion(ConfigMap& options) {
  options.describe(
      "Lion (Chen et al. 2023): moves each weight by the sign of a mean of gradients. Keeps one float32 value a "
      "weight. "
      "The paper's learning rates are 3 to 10 times smaller than AdamW's, and its weight decay as many times larger.",
      "lion: {learning_rate: 1.0e-4, weight_decay: 0.5, decay_biases: false}");
  OptimizerReader reader(options);
  LionOptions lion;
  lion.learning_rate = reader.learning_rate(1e-4);
  lion.beta1 = reader.beta1("Share of the mean of gradients in the sum whose sign counts.");
  lion.beta2 = reader.share({"beta2", "Share of the mean of gradients that stays at each update."}, 0.99);
  lion.weight_decay = reader.weight_decay(true, 0.0);
  return reader.with(bantam::lion(lion));
}

}  // namespace bantam
