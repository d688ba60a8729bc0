// Defaults of a grid, and the choice of recompute a row.
#include "bantam/run/fit/step_grid.h"

#include "bantam/base/error.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/fit/run_plan.h"

namespace bantam::run {
namespace {

StepGrid with_defaults(const RunConfig& config, StepGrid grid, std::uint64_t bytes) {
  if (grid.precisions.empty()) grid.precisions = {config.precision};
  if (grid.recomputes.empty() && bytes > 0 && !config.recompute_given) grid.recomputes = {std::nullopt};
  if (grid.recomputes.empty()) grid.recomputes = {config.recompute};
  if (grid.batches.empty()) grid.batches = {usual_batch(config)};
  if (grid.modes.empty()) grid.modes = {parse_step_mode("auto", config.device)};
  return grid;
}

RecomputeChoice choose(const RunConfig& config, std::int64_t batch, Precision precision, std::uint64_t bytes,
                       bool whole_run) {
  if (bytes == 0) throw ConfigError("recompute: there is neither memory.budget nor a limit to choose a policy for");
  if (!whole_run || !has_batches(config, batch)) return choose_recompute(config, {batch, precision, {}}, bytes);
  RunConfig run = config;
  run.precision = precision;
  return choose_for_run(run, batch, bytes);
}

StepCase step_case(const RunConfig& config, std::int64_t batch, Precision precision,
                   const std::optional<RecomputeOptions>& recompute, std::uint64_t bytes, bool whole_run) {
  if (recompute) return {batch, precision, *recompute};
  const RecomputeChoice choice = choose(config, batch, precision, bytes, whole_run);
  StepCase step{batch, precision, choice.recompute};
  if (to_string(choice.recompute) != "none") step.predicted_extra = choice.extra_work;
  return step;
}

}  // namespace

std::int64_t usual_batch(const RunConfig& config) { return config.data ? config.data->pipeline.batch_size : 16; }

std::vector<StepCase> step_cases(const RunConfig& config, const StepGrid& grid, std::uint64_t bytes) {
  require_model_fits(config);  // steps run without data, but what `train` refuses is not worth measuring
  const StepGrid all = with_defaults(config, grid, bytes);
  std::vector<StepCase> cases;
  for (const Precision precision : all.precisions)
    for (const auto& recompute : all.recomputes)
      for (const std::int64_t batch : all.batches) {
        StepCase row = step_case(config, batch, precision, recompute, bytes, all.whole_run);
        for (const StepMode mode : all.modes) {
          row.mode = mode;
          cases.push_back(row);
        }
      }
  return cases;
}

}  // namespace bantam::run
