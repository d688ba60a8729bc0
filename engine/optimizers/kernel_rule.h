// The base of the built-in optimizers: a rule that is a kind of kernels::ApplyUpdate, and a reader of their options.
#pragma once

#include <string_view>
#include <utility>

#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/kernels/update/update.h"

namespace bantam {

/// A built-in rule of one kernel.
class KernelRule : public UpdateRule {
 public:
  struct Facts {
    std::string_view kind;
    kernels::UpdateKind kernel;
    UpdateValues values;
    kernels::UpdateGroup constants = {};       // beta2, beta3 and epsilon count
    std::string_view momentum_name = "beta1";  // the name of UpdateValues::momentum in messages
    bool has_momentum = true;                  // false: it has no slot, and momentum must stay 0
  };
  /// Throws ConfigError where the values or constants are out of their ranges.
  explicit KernelRule(const Facts& facts);

  std::string_view kind() const override { return facts_.kind; }
  UpdateValues values() const override { return facts_.values; }
  void check(const UpdateValues& values) const override;
  int slots() const override { return kernels::facts_of(facts_.kernel).slots; }
  void apply(const Context& context, const UpdateCall& call) const override;
  bool supports_meta() const override { return true; }
  bool uses_update_kernels() const override { return true; }
  void set_constants(kernels::UpdateGroup& group) const override;

 private:
  Facts facts_;
};

/// Reads the options of one optimizer, in the order of the calls, and makes what they describe.
class OptimizerReader {
 public:
  explicit OptimizerReader(ConfigMap& options) : options_(options) {}

  float learning_rate(double otherwise);
  float momentum(std::string_view meaning, double otherwise);  // `meaning`: a whole sentence
  float beta1(std::string_view meaning, double otherwise = 0.9);
  /// Reads a number in [0, 1): beta2, alpha …
  float share(const ConfigKey& key, double otherwise);
  float epsilon(const char* meaning, double otherwise);
  /// weight_decay, and decay_biases. `decoupled`: it is no part of the gradient.
  float weight_decay(bool decoupled, double otherwise);
  /// Reads a value that may have a schedule.
  float scheduled(const ConfigKey& key, NumberRange range, double otherwise, ScheduleMaker OptimizerSchedules::*which);
  bool momentum_is_scheduled() const { return static_cast<bool>(optimizer_.schedules.momentum); }

  OptimizerOptions with(RulePtr rule) {
    optimizer_.rule = std::move(rule);
    return std::move(optimizer_);
  }

 private:
  ConfigMap& options_;
  OptimizerOptions optimizer_;
};

/// Range of numbers that are not negative.
inline constexpr NumberRange kRates{.min = 0, .max = 1e30};

#define BANTAM_OPTIMIZER_READER(name) OptimizerOptions read_##name(ConfigMap& options);
BANTAM_OPTIMIZERS(BANTAM_OPTIMIZER_READER)
#undef BANTAM_OPTIMIZER_READER

}  // namespace bantam
