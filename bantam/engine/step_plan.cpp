// Two traced updates on a meta device, and the arithmetic on their trace.
#include "bantam/engine/step_plan.h"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocation_trace.h"

namespace bantam {
namespace {

/// The trace of a run, in which everything began after the trace did.
struct TracedRun {
  std::vector<TraceInterval> intervals;
  std::int64_t step_begin = 0, step_end = 0;  // ticks: the second update's
};

Batch input_batch(const Model& model, std::int64_t size) {
  const Context context = model.context(Pass::train).at(model.runtime().intern("input"));
  Batch batch{.size = size};
  batch.images =
      context.allocate(model.graph().input_shape().prepend(size), context.precision.compute(), Category::input);
  batch.labels = context.allocate({size}, DType::int32, Category::input);
  return batch;
}

/// Makes the model and runs two updates; `trace` may be null.
TracedRun run_steps(Runtime& runtime, const Graph& graph, const StepPlanOptions& options, AllocationTrace* trace) {
  const Device device = Device::meta_of(options.device);
  const auto now = [trace] { return trace == nullptr ? 0 : trace->now(); };
  BfcAllocator& memory = runtime.allocator(device);
  memory.set_trace(trace);
  memory.note_phase("setup");
  TracedRun run;
  Model model(runtime, device, graph, options.model);
  Optimizer optimizer(model, options.optimizer);
  TrainingStep step(model, optimizer, options.loss);
  memory.note_phase("input");
  const Batch batch = input_batch(model, options.batch);
  for (int update = 0; update < 2; ++update) {
    run.step_begin = now();
    for (std::int64_t i = 0; i < options.accumulate; ++i)
      step.micro_batch(batch, i * options.batch, options.accumulate * options.batch);
    step.update();
    run.step_end = now();
  }
  memory.set_trace(nullptr);  // what is live now lives on
  return run;
}

TracedRun trace_steps(Runtime& runtime, const Graph& graph, const StepPlanOptions& options) {
  AllocationTrace trace;
  TracedRun run = run_steps(runtime, graph, options, &trace);
  run.intervals = trace.intervals();
  for (TraceInterval& interval : run.intervals)
    if (interval.upper == TraceInterval::kStillLive) interval.upper = run.step_end;
  return run;
}

/// The tick at which most bytes of `kept` intervals are in use, the first of equals; and how many.
template <class Keep>
std::pair<std::int64_t, std::uint64_t> peak_of(const TracedRun& run, Keep&& kept) {
  std::vector<std::int64_t> change(static_cast<std::size_t>(run.step_end) + 1);
  for (const TraceInterval& interval : run.intervals) {
    if (!kept(interval)) continue;
    change[static_cast<std::size_t>(interval.lower)] += static_cast<std::int64_t>(interval.bytes);
    change[static_cast<std::size_t>(interval.upper)] -= static_cast<std::int64_t>(interval.bytes);
  }
  std::int64_t live = 0, most = 0, at = 0;
  for (std::size_t t = 0; t < change.size(); ++t) {
    live += change[t];
    if (live <= most) continue;
    most = live;
    at = static_cast<std::int64_t>(t);
  }
  return {at, static_cast<std::uint64_t>(most)};
}

void describe_peak(const TracedRun& run, StepPlan& plan) {
  const auto [peak, bytes] = peak_of(run, [](const TraceInterval&) { return true; });
  plan.peak_bytes = bytes;
  std::map<std::pair<std::string, Category>, Holder> holders;
  for (const TraceInterval& interval : run.intervals) {
    if (interval.lower == peak)
      plan.moment = {interval.tag.owner, interval.tag.category, interval.phase, interval.bytes};
    if (peak < interval.lower || peak >= interval.upper) continue;
    plan.by_category[interval.tag.category] += interval.bytes;
    Holder& holder = holders[{interval.tag.owner, interval.tag.category}];
    holder.owner = interval.tag.owner;
    holder.category = interval.tag.category;
    holder.bytes += interval.bytes;
    ++holder.allocations;
  }
  for (auto& [key, holder] : holders) plan.holders.push_back(std::move(holder));
  std::ranges::stable_sort(plan.holders, std::greater<>(), &Holder::bytes);
}

void describe_step(const TracedRun& run, const PlannerOptions& planner, StepPlan& plan) {
  std::vector<PlannerBuffer> buffers;
  for (const TraceInterval& interval : run.intervals) {
    const std::int64_t lower = std::max(interval.lower, run.step_begin), upper = interval.upper;
    if (upper <= lower) continue;
    if (interval.lower < run.step_begin && upper >= run.step_end) {
      plan.persistent_bytes += interval.bytes;
      continue;
    }
    const PlannerBuffer buffer{static_cast<std::int64_t>(buffers.size()), lower - run.step_begin,
                               upper - run.step_begin, interval.bytes};
    buffers.push_back(buffer);
    plan.step.push_back({buffer, interval.tag.owner, interval.tag.category, interval.phase});
  }
  plan.arena = solve_arena(buffers, planner);
  plan.step_peak_bytes = plan.persistent_bytes + plan.arena.max_live_bytes;
}

void check_options(const StepPlanOptions& options) {
  if (options.batch < 1 || options.accumulate < 1)
    throw Error(fmt::format("plan_step: batch and accumulate must be at least 1, got {} and {}", options.batch,
                            options.accumulate));
}

}  // namespace

StepPlan plan_step(const Graph& graph, const StepPlanOptions& options) {
  check_options(options);
  Runtime runtime(RuntimeOptions{.threads = 1});
  const TracedRun run = trace_steps(runtime, graph, options);
  StepPlan plan;
  describe_peak(run, plan);
  plan.workspace_bytes =
      peak_of(run, [](const TraceInterval& i) { return i.tag.category == Category::workspace; }).second;
  describe_step(run, options.planner, plan);
  return plan;
}

std::uint64_t step_peak(const Graph& graph, const StepPlanOptions& options) {
  check_options(options);
  Runtime runtime(RuntimeOptions{.threads = 1});
  (void)run_steps(runtime, graph, options, nullptr);
  return runtime.allocator(Device::meta_of(options.device)).stats().peak_bytes;
}

bool step_fits(const Graph& graph, const StepPlanOptions& options, std::uint64_t limit_bytes) {
  check_options(options);
  const std::string device = to_string(Device::meta_of(options.device));
  Runtime runtime(RuntimeOptions{.threads = 1, .limits = {{device, limit_bytes}}});
  try {
    (void)run_steps(runtime, graph, options, nullptr);
  } catch (const OutOfMemory&) {
    return false;
  }
  return true;
}

}  // namespace bantam
