// StepCase: one training step of a configuration, as plans and benches vary it.
#pragma once

#include <cstdint>
#include <optional>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The settings of one row of a bench.
struct StepCase {
  std::int64_t batch = 1;  ///< samples of a micro-batch
  Precision precision;
  RecomputeOptions recompute;
  StepMode mode = StepMode::planned;
  std::optional<double> predicted_extra = {};  ///< share of a step's time, where the program chose the recompute
};

/// The step as plan_step's argument: one micro-batch an update for each replica.
StepPlanOptions step_plan_options(const RunConfig& config, const StepCase& options);
/// The same with the configuration's accumulation, as `bantam train` runs it.
StepPlanOptions train_plan_options(const RunConfig& config, const StepCase& options);

}  // namespace bantam::run
