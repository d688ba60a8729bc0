// run::plan: the memory of training, to the byte, before anything is allocated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/plan_fit.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/fit/step_grid.h"
#include "bantam/run/run.h"

namespace bantam::run {

/// One step and, where the configuration has data for it, the run of it.
struct PlanRow {
  StepCase step;
  PlannedRun planned;          ///< as programs see the row: of the run, else of the step
  StepPlan plan;               ///< the plan of the step alone
  std::optional<RunPlan> run;  ///< the plan of `bantam train`; nullopt where the data do not fill a batch

  /// A pool that is enough for both the run and the step.
  std::uint64_t needed_pool() const;
};

struct Plan {
  PlanTarget target;
  PlanFit fit;            ///< the limit of the rows
  DecisionLog decisions;  ///< how the batch size was chosen, where it was `auto` and none was asked for
  std::vector<StepCase> cases;
  std::vector<PlanRow> rows;  ///< one a case

  /// Whether any row fits.
  bool any_fits() const;
  /// The row that needs the smallest pool, the first of equals. There are rows.
  const PlanRow& least() const;
};

/// A rank's part of a run of several.
struct RankPlan {
  int first = 0, count = 1;                          ///< its replicas
  Plan plan;                                         ///< one case alone: the configuration's, with this rank's limit
  std::uint64_t tree_bytes = 0, exchange_bytes = 0;  ///< sums that wait for others, here and on their way

  const PlanRow& row() const { return plan.rows.front(); }
};

/// The plan of each rank of a run of `ranks`, of the configuration's batch size and precision; of `train.split: auto`,
/// whose shares only the run knows, that of even ones; of `cache: auto`, that of ranks on one host. Recompute is chosen
/// for each rank's limit: `memory` (one for all, or one a rank; empty: as configured). Ranks on GPUs are planned for
/// one model of GPU, RunConfig::planned_for where that is set. Throws as plan, and ConfigError as require_ranks.
std::vector<RankPlan> plan_ranks(const RunConfig& config, int ranks, const std::vector<std::uint64_t>& memory = {},
                                 double arena_seconds = 1.0);

/// Plans every case of the request for the target (plan_target), which need not be in this machine: nothing is
/// allocated and no data are read. `on_row` is called with the plan after each row, which is its last. Throws
/// ConfigError, ShapeError, and OutOfMemory where no batch fits or a device has less memory than its shares.
Plan plan(const RunConfig& config, const PlanTarget& target, const PlanRequest& request = {},
          const std::function<void(const Plan&)>& on_row = {});

}  // namespace bantam::run
