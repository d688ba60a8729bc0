// Checks of optimizers' options.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bantam/engine/optimizers/optimizer.h"

namespace bantam {

/// Throws ConfigError("optimizer: `what`, got `value`") where it is not fine, or not finite.
void require_option(bool fine, std::string_view what, float value);
/// Checks as UpdateRule::check does; `momentum`: the rule's name of UpdateValues::momentum, for the message.
void check_values(const UpdateValues& values, std::string_view momentum = "momentum");
/// Throws ConfigError where an option is out of its range.
void check_options(const OptimizerOptions& options);

/// An option of an optimizer that does not work with a precision.
struct PrecisionConflict {
  std::string_view key;  ///< in the section train: "ema", "prune", "optimizer"
  std::string text;      ///< the conflict, and the precisions that were expected
};
/// Finds an option that needs float32 weights outside the update's own kernels, where the precision keeps none.
std::optional<PrecisionConflict> conflict_with(const OptimizerOptions& options, Precision precision);

}  // namespace bantam
