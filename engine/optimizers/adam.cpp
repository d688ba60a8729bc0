// Adam and AdamW.
#include "bantam/engine/optimizers/kernel_rule.h"

namespace bantam {
namespace {

template <class Options>
RulePtr make(std::string_view kind, kernels::UpdateKind kernel, const Options& o) {
  return std::make_shared<KernelRule>(KernelRule::Facts{.kind = kind,
                                                        .kernel = kernel,
                                                        .values = {o.learning_rate, o.weight_decay, o.beta1},
                                                        .constants = {.beta2 = o.beta2, .epsilon = o.epsilon}});
}

template <class Options>
Options read(OptimizerReader& reader, bool decoupled) {
  Options adam;
  adam.learning_rate = reader.learning_rate(1e-3);
  adam.beta1 = reader.beta1("Share of the mean of gradients that stays at each update.");
  adam.beta2 = reader.share({"beta2", "Share of the mean of squared gradients that stays at each update."}, 0.999);
  adam.epsilon = reader.epsilon(
      "Added to the root of the squared gradients' mean, against division by 0. PyTorch has 1e-8.", 1e-7);
  adam.weight_decay = reader.weight_decay(decoupled, decoupled ? 0.004 : 0.0);
  return adam;
}

}  // namespace

RulePtr adam(const AdamOptions& options) { return make("adam", kernels::UpdateKind::adam, options); }
RulePtr adamw(const AdamWOptions& options) { return make("adamw", kernels::UpdateKind::adamw, options); }

OptimizerOptions read_adam(ConfigMap& options) {
  options.describe("Adam (Kingma and Ba 2015). Keeps two float32 values a weight.", "adam: {learning_rate: 1.0e-3}");
  OptimizerReader reader(options);
  const auto adam = read<AdamOptions>(reader, false);
  return reader.with(bantam::adam(adam));
}

OptimizerOptions read_adamw(ConfigMap& options) {
  options.describe("Adam with decoupled weight decay (Loshchilov and Hutter 2019).",
                   "adamw: {learning_rate: 1.0e-3, weight_decay: 0.05, decay_biases: false}");
  OptimizerReader reader(options);
  const auto adam = read<AdamWOptions>(reader, true);
  return reader.with(adamw(adam));
}

}  // namespace bantam
