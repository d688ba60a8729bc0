// Internal: `train.ema` and `train.prune`, what follows an update.
#pragma once

#include <optional>

#include "bantam/base/config/config.h"
#include "bantam/engine/optimizers/optimizer.h"

namespace bantam::run {

/// Nothing where the key is missing or off. Throws ConfigError.
std::optional<EmaOptions> read_ema(ConfigMap& train);
std::optional<PruneOptions> read_prune(ConfigMap& train);

}  // namespace bantam::run
