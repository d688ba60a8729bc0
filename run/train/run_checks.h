// The start of a run without its data: what `bantam validate` finds beside a configuration's own errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/run/config/run_config.h"
#include "bantam/run/fit/run_plan.h"

namespace bantam::run {

/// Errors and warnings of `train` for a new run, before its first update.
struct RunFindings {
  std::vector<std::string> errors;    ///< it would refuse the run; the first of each step of the start
  std::vector<std::string> warnings;  ///< run_warnings, and those of the other steps
};

/// Goes through the steps of a start by the functions that `train` uses, on a meta device: decides every `auto`, plans
/// the memory, and matches the file of the weights with the model. No sample is decoded, nothing is written. A GPU that
/// this machine lacks is a warning: its memory is then not looked at. The configuration has data and suits its model
/// (require_model_fits).
RunFindings check_run(const RunConfig& config);

/// Throws OutOfMemory where the host cannot hold `bytes` of a run's pool, beside the copies of its state that saving
/// makes.
void require_free_host_bytes(const RunConfig& config, const RunPlan& plan, std::uint64_t bytes);

}  // namespace bantam::run
