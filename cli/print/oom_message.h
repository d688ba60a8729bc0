// The message when memory ran out: the allocator's report, and changes of the configuration that fit.
#pragma once

#include <string>

#include "bantam/base/error.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/engine/plan/oom_advice.h"
#include "bantam/run/config/step_case.h"

namespace bantam::cli {

/// Lines of at most 80 columns: the planned pool and its limit `bytes`, and each edit as it is written in a
/// configuration, with its planned pool.
std::string advice_text(const OomAdvice& advice, std::uint64_t bytes);

/// The error with advice for a training run, whose data count. The unchanged error where nothing helps.
OutOfMemory explain_training(const OutOfMemory& error, const RunConfig& config);

/// The same for a step with one batch resident, as benches run it.
OutOfMemory explain_step(const OutOfMemory& error, const RunConfig& config, const StepCase& step);

}  // namespace bantam::cli
