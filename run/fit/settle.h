// Settling a run before it begins: what the configuration leaves open is decided, once, and written into it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bantam/run/config/run_config.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::run {

/// What was decided, and a line on each decision for the user.
struct Settled {
  std::optional<BatchChoice> batch;          ///< of `batch: {size: auto}`
  std::optional<RecomputeChoice> recompute;  ///< where a budget or a limit asks for it and the configuration does not
  std::vector<std::string> messages;
  std::vector<std::string> warnings;
};

/// Decides what a configuration with data leaves open; of a settled one, nothing. Throws OutOfMemory where a budget
/// cannot be met.
Settled settle(const RunConfig& config);

/// The configuration with all that was decided, `device: auto` and `precision: auto` included: in its fields, and in
/// its document, so that the resolved text gives the same run on any machine.
RunConfig with_settled(const RunConfig& config, const Settled& settled);

}  // namespace bantam::run
