// Cases, then a row for each.
#include "bantam/run/plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "bantam/run/config/cache_config.h"
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
  PlanRow row{.step = step, .plan = plan_step(config.model.graph, options), .run = plan_whole_run(config, step)};
  row.planned = {.batch = step.batch,
                 .precision = step.precision,
                 .recompute = step.recompute,
                 .peak_bytes = row.run ? row.run->peak_bytes : row.plan.peak_bytes,
                 .pool_bytes = row.run ? row.run->pool_bytes : row.plan.pool_bytes,
                 .by_category = row.run ? row.run->by_category : row.plan.by_category};
  if (pool > 0)
    row.planned.fits = (!row.run || row.run->pool_bytes <= pool) && step_fits(config.model.graph, options, pool);
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

std::uint64_t PlanRow::needed_pool() const { return std::max(planned.pool_bytes, plan.pool_bytes); }

bool Plan::any_fits() const {
  return std::ranges::any_of(rows, [](const PlanRow& row) { return row.planned.fits; });
}

const PlanRow& Plan::least() const { return *std::ranges::min_element(rows, {}, &PlanRow::needed_pool); }

Plan plan(const RunConfig& config, const PlanTarget& target, const PlanRequest& request,
          const std::function<void(const Plan&)>& on_row) {
  Plan plan{.target = target};
  if (request.memory > 0) plan.target.memory = request.memory;
  const RunConfig decided = decide_step(config, plan.target, request.batches, plan.decisions);
  plan.fit = plan_fit(decided.memory, plan.target);
  const StepGrid grid{.precisions = request.precisions,
                      .recomputes = request.recomputes,
                      .batches = request.batches,
                      .whole_run = true};
  plan.cases = step_cases(decided, grid, grid.recomputes.empty() ? plan.fit.chosen_pool() : plan.fit.pool);
  for (const StepCase& step : plan.cases) {
    plan.rows.push_back(plan_row(decided, step, plan.fit.pool, request.arena_seconds));
    if (on_row) on_row(plan);
  }
  return plan;
}

MemoryPlan plan(const Config& config, const PlanRequest& request) {
  const Plan planned = plan(*config, plan_target(*config, std::nullopt), request);
  MemoryPlan result{.rows = {}, .pool_bytes_at_most = planned.fit.pool};
  for (const PlanRow& row : planned.rows) result.rows.push_back(row.planned);
  return result;
}

std::vector<RankPlan> plan_ranks(const RunConfig& config, int ranks, const std::vector<std::uint64_t>& memory,
                                 double arena_seconds) {
  RunConfig even = config;
  if (even.train.split.kind == SplitOptions::Kind::automatic) even.train.split = {};
  decide_cache(even, {.all = ranks, .local = ranks});
  const std::vector<int> assigned = assigned_replicas(even, ranks, {});
  PlanRequest request{.arena_seconds = arena_seconds};
  std::vector<RankPlan> plans;
  int first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const RunConfig own = config_of_rank(even, rank, assigned);
    if (!memory.empty()) request.memory = memory.at(memory.size() == 1 ? 0 : static_cast<std::size_t>(rank));
    RankPlan planned{.first = first,
                     .count = assigned.empty() ? config.train.replicas : assigned[static_cast<std::size_t>(rank)],
                     .plan = plan(own, plan_target(own, config.planned_for), request)};
    planned.exchange_bytes = bytes_of(planned.row().plan, "replicas/exchange");
    planned.tree_bytes = bytes_of(planned.row().plan, "replicas/") - planned.exchange_bytes;
    first += planned.count;
    request.batches = {planned.row().step.batch};  // `auto` is rank 0's choice
    plans.push_back(std::move(planned));
  }
  return plans;
}

}  // namespace bantam::run
