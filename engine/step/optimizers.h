// The table of optimizers that a configuration may name.
#pragma once

#include "bantam/base/config/config_registry.h"
#include "bantam/engine/step/optimizer.h"

namespace bantam {

/// Built-in: adam, adamw and sgd, with Keras' defaults. An entry reads what stands under its name; clipping and the
/// loss scale are the section's. A program adds a rule of its own before the first configuration is read:
///
///     optimizers().add("sign_sgd", [](ConfigMap& options) {
///       OptimizerOptions optimizer{.rule = std::make_shared<SignSgd>()};
///       optimizer.learning_rate = static_cast<float>(options.number("learning_rate", {.min = 0}, 1e-3));
///       return optimizer;
///     });
Registry<Reader<OptimizerOptions>>& optimizers();

/// `optimizer: NAME` or `optimizer: {NAME: {options}}`; adam where the key is missing. Throws ConfigError.
OptimizerOptions read_optimizer(ConfigMap& section);

}  // namespace bantam
