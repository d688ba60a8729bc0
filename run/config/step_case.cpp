// From a case to what plan_step asks for.
#include "bantam/run/config/step_case.h"

namespace bantam::run {

StepPlanOptions step_plan_options(const RunConfig& config, const StepCase& options) {
  return {.model = model_options(config, options.precision, options.recompute),
          .optimizer = config.train.optimizer,
          .loss = config.train.loss,
          .replicas = replica_options(config),
          .batch = options.batch,
          .accumulate = 1,
          .device = config.device};
}

StepPlanOptions train_plan_options(const RunConfig& config, const StepCase& options) {
  StepPlanOptions step = step_plan_options(config, options);
  step.accumulate = config.train.accumulate;
  return step;
}

}  // namespace bantam::run
