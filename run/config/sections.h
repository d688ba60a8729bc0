// Readers of sections that run_config.cpp puts together.
#pragma once

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Reads `memory:`. Throws ConfigError.
MemoryConfig read_memory(ConfigMap memory);

/// Reads `recompute`, whose names are layers and blocks of the graph. Throws ConfigError.
RecomputeOptions read_recompute(ConfigMap& root, const Graph& graph);

}  // namespace bantam::run
