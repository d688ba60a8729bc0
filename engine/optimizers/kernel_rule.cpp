// Rules of one kernel, readers' common keys, and the table of optimizers.
#include "bantam/engine/optimizers/kernel_rule.h"

#include <string>

#include "bantam/base/error.h"
#include "bantam/engine/optimizers/checks.h"

namespace bantam {

KernelRule::KernelRule(const Facts& facts) : facts_(facts) {
  const kernels::UpdateGroup& constants = facts_.constants;
  check_values(facts_.values, facts_.momentum_name);
  require_option(constants.beta2 >= 0.0f && constants.beta2 < 1.0f, "beta2 must be in [0, 1)", constants.beta2);
  require_option(constants.epsilon > 0.0f, "epsilon must be positive", constants.epsilon);
}

void KernelRule::check(const UpdateValues& values) const {
  check_values(values, facts_.momentum_name);
  if (values.momentum > 0.0f && !facts_.has_momentum)
    throw ConfigError("optimizer: momentum needs a slot of its own: the optimizer's options have no momentum");
}

void KernelRule::apply(const Context& context, const UpdateCall& call) const {
  BANTAM_KERNEL(context.exec, apply_update, facts_.kernel, *call.arena, *call.statistics, call.control);
}

void KernelRule::set_constants(kernels::UpdateGroup& group) const {
  group.beta2 = facts_.constants.beta2;
  group.beta3 = facts_.constants.beta3;
  group.epsilon = facts_.constants.epsilon;
}

namespace {

constexpr NumberRange kShares{.min = 0, .max = 1, .max_open = true};

}  // namespace

float OptimizerReader::scheduled(const ConfigKey& key, NumberRange range, double otherwise,
                                 ScheduleMaker OptimizerSchedules::*which) {
  ScheduledNumber number = read_scheduled_number(options_, key, range, otherwise);
  optimizer_.schedules.*which = std::move(number.schedule);
  return number.value;
}

float OptimizerReader::learning_rate(double otherwise) {
  return scheduled({"learning_rate",
                    "Step size: a number, or {schedule: NAME, peak: NUMBER} with the schedule's options beside them "
                    "(Schedules, below).",
                    "0.1 | {schedule: cosine, peak: 0.1, warmup: 5epochs}"},
                   kRates, otherwise, &OptimizerSchedules::learning_rate);
}

float OptimizerReader::momentum(std::string_view meaning, double otherwise) {
  const std::string whole = std::string(meaning) + " It may have a schedule.";
  return scheduled({"momentum", whole, "0.9 | {schedule: one_cycle, start: 0.95, peak: 0.85, final: 0.95}"}, kShares,
                   otherwise, &OptimizerSchedules::momentum);
}

float OptimizerReader::beta1(std::string_view meaning, double otherwise) {
  const std::string whole = std::string(meaning) + " It may have a schedule.";
  return scheduled({"beta1", whole, "0.95 | {schedule: one_cycle, start: 0.95, peak: 0.85, final: 0.95}"}, kShares,
                   otherwise, &OptimizerSchedules::momentum);
}

float OptimizerReader::share(const ConfigKey& key, double otherwise) {
  return static_cast<float>(options_.number(key, kShares, otherwise));
}

float OptimizerReader::epsilon(const char* meaning, double otherwise) {
  return static_cast<float>(options_.number({"epsilon", meaning}, {.min = 0, .max = 1, .min_open = true}, otherwise));
}

float OptimizerReader::weight_decay(bool decoupled, double otherwise) {
  const float decay = scheduled(
      {"weight_decay",
       decoupled ? "Pull of the weights towards 0: each update shrinks the weight by this times the learning rate "
                   "(decoupled). 0: none. It may have a schedule, as the learning rate."
                 : "Pull of the weights towards 0: added to the gradient as this times the weight (L2, as in PyTorch). "
                   "0: none. It may have a schedule, as the learning rate.",
       "5.0e-4 | {schedule: linear, peak: 0.01, final: 0.1}"},
      kRates, otherwise, &OptimizerSchedules::weight_decay);
  optimizer_.decay_biases = options_.boolean(
      {"decay_biases",
       "Whether weight decay acts on biases and on scale and shift of norms, too. false: on weights only, as most "
       "recipes for convolutional networks do."},
      true);
  return decay;
}

Registry<Reader<OptimizerOptions>>& optimizers() {
#define BANTAM_OPTIMIZER_ENTRY(name) {#name, read_##name},
  static Registry<Reader<OptimizerOptions>> table("optimizer", {BANTAM_OPTIMIZERS(BANTAM_OPTIMIZER_ENTRY)});
#undef BANTAM_OPTIMIZER_ENTRY
  return table;
}

OptimizerOptions read_optimizer(ConfigMap& section) {
  return read_registered(
      optimizers(), section.node({"optimizer", "How weights follow from gradients: a name, or a name with its options.",
                                  "adam | {sgd: {learning_rate: 0.1, momentum: 0.9}}"},
                                 "adam"));
}

}  // namespace bantam
