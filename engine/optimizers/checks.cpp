// Ranges of values and options, and their conflicts with a precision.
#include "bantam/engine/optimizers/checks.h"

#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {

void require_option(bool fine, std::string_view what, float value) {
  if (!fine || !std::isfinite(value))
    throw ConfigError(fmt::format("optimizer: {}{}, got {}", what, fine ? " and must be finite" : "", value));
}

void check_values(const UpdateValues& values, std::string_view momentum) {
  require_option(values.learning_rate >= 0.0f, "learning_rate must not be negative", values.learning_rate);
  require_option(values.weight_decay >= 0.0f, "weight_decay must not be negative", values.weight_decay);
  require_option(values.momentum >= 0.0f && values.momentum < 1.0f, fmt::format("{} must be in [0, 1)", momentum),
                 values.momentum);
}

void UpdateRule::check(const UpdateValues& values) const { check_values(values); }

std::unique_ptr<RuleState> UpdateRule::make_state(const Context&, const ParameterArena&,
                                                  const std::vector<kernels::ArenaSpan>&) const {
  return nullptr;
}

void check_options(const OptimizerOptions& o) {
  if (o.rule == nullptr) throw ConfigError("optimizer: there is no rule");
  o.rule->check(o.rule->values());
  require_option(o.clip_norm >= 0.0f, "clip_norm must not be negative", o.clip_norm);
  require_option(o.clip_value >= 0.0f, "clip_value must not be negative", o.clip_value);
  require_option(o.layer_decay > 0.0f && o.layer_decay <= 1.0f, "layer_decay must be in (0, 1]", o.layer_decay);
  require_option(o.initial_loss_scale >= 1.0f, "initial_loss_scale must be at least 1", o.initial_loss_scale);
}

std::optional<PrecisionConflict> conflict_with(const OptimizerOptions& options, Precision precision) {
  if (precision.keeps_masters()) return std::nullopt;
  const auto conflict = [&](std::string_view key, const std::string& what) -> PrecisionConflict {
    return {key, fmt::format("{} float32 weights, of which precision {} keeps none; expected precision float32, "
                             "mixed_float16 or mixed_bfloat16",
                             what, to_string(precision))};
  };
  if (!options.rule->uses_update_kernels())
    return conflict("optimizer", fmt::format("the rule '{}' moves", options.rule->kind()));
  if (options.ema) return conflict("ema", "ema averages");
  if (options.prune) return conflict("prune", "prune masks");
  return std::nullopt;
}

}  // namespace bantam
