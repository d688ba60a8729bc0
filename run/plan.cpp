// Cases, then a row for each.
#include "bantam/run/plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "bantam/run/fit/fitting.h"
#include "bantam/run/ranks/rank_config.h"

namespace bantam::run {
namespace {

std::optional<RunPlan> plan_whole_run(const RunConfig& config, const StepCase& step) {
  if (!has_batches(config, step.batch)) return std::nullopt;
  RunConfig run = variant(config, step.batch, step.recompute);
  run.precision = step.precision;
  return plan_run(run);
}

/// `pool`: most bytes of the device's allocator; 0: everything fits.
PlanRow plan_row(const RunConfig& config, const StepCase& step, std::uint64_t pool, double arena_seconds) {
  StepPlanOptions options = train_plan_options(config, step);
  options.planner.seconds = arena_seconds;
  PlanRow row{step, plan_step(config.model.graph, options), plan_whole_run(config, step)};
  if (pool > 0) row.fits = (!row.run || row.run->pool_bytes <= pool) && step_fits(config.model.graph, options, pool);
  return row;
}

/// Bytes that the step holds by this name, or below it.
std::uint64_t bytes_of(const StepPlan& plan, std::string_view owner) {
  std::uint64_t bytes = 0;
  for (const Holder& holder : plan.holders)
    if (holder.owner.starts_with(owner)) bytes += holder.bytes;
  return bytes;
}

}  // namespace

std::uint64_t PlanRow::needed_pool() const { return std::max(reserved_bytes(), plan.pool_bytes); }

bool Plan::any_fits() const { return std::ranges::any_of(rows, &PlanRow::fits); }

const PlanRow& Plan::least() const { return *std::ranges::min_element(rows, {}, &PlanRow::needed_pool); }

Plan plan(const RunConfig& config, const PlanTarget& target, const PlanOptions& options,
          const std::function<void(const Plan&)>& on_row) {
  Plan plan{.target = target, .fit = plan_fit(config, target, options.memory)};
  StepGrid grid = options.grid;
  if (grid.batches.empty() && config.data) {
    if (config.data->pipeline.batch_size_is_auto) plan.batch = chosen_batch(config, target, plan.fit);
    grid.batches = {plan.batch ? plan.batch->batch : config.data->pipeline.batch_size};
  }
  plan.cases = step_cases(config, grid, grid.recomputes.empty() ? plan.fit.chosen_pool() : plan.fit.pool);
  for (const StepCase& step : plan.cases) {
    plan.rows.push_back(plan_row(config, step, plan.fit.pool, options.arena_seconds));
    if (on_row) on_row(plan);
  }
  return plan;
}

std::vector<RankPlan> plan_ranks(const RunConfig& config, int ranks, const std::vector<std::uint64_t>& memory,
                                 double arena_seconds) {
  RunConfig even = config;
  if (even.train.split.kind == SplitOptions::Kind::automatic) even.train.split = {};
  settle_cache_of_ranks(even, ranks, ranks);
  const std::vector<int> dealt = dealt_replicas(even, ranks, {});
  PlanOptions options{.arena_seconds = arena_seconds};
  std::vector<RankPlan> plans;
  int first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const RunConfig own = config_of_rank(even, rank, dealt);
    if (!memory.empty()) options.memory = memory.at(memory.size() == 1 ? 0 : static_cast<std::size_t>(rank));
    RankPlan planned{.first = first,
                     .count = dealt.empty() ? config.train.replicas : dealt[static_cast<std::size_t>(rank)],
                     .plan = plan(own, plan_target(own, config.planned_for), options)};
    planned.exchange_bytes = bytes_of(planned.row().plan, "replicas/exchange");
    planned.tree_bytes = bytes_of(planned.row().plan, "replicas/") - planned.exchange_bytes;
    first += planned.count;
    options.grid.batches = {planned.row().step.batch};  // `auto` is rank 0's choice
    plans.push_back(std::move(planned));
  }
  return plans;
}

}  // namespace bantam::run
