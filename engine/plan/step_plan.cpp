// Two traced updates on a meta device, and the arithmetic on their trace.
#include "bantam/engine/plan/step_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/engine/step/step_placements.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/common/kernel_log.h"
#include "bantam/memory/allocator/accounting.h"

namespace bantam {
namespace {

/// The trace of a run, in which everything began after the trace did.
struct TracedRun {
  std::vector<TraceInterval> intervals;
  std::int64_t step_begin = 0, step_end = 0;  // ticks: the second update's
};

void run_update(TrainingStep& step, const Batch& batch, std::int64_t accumulate) {
  MicroBatches(step).accumulate(accumulate * step.replicas().count(), 0, [&](std::int64_t) { return batch; });
  step.update();
}

/// Samples of the largest evaluated source: as the options say, or the batches' sum; at least the largest batch.
std::int64_t evaluated_samples(const StepPlanOptions& options) {
  std::int64_t sum = 0, most = 0;
  for (const std::int64_t size : options.evaluation_batches) {
    sum += size;
    most = std::max(most, size);
  }
  return std::max(options.evaluation_samples > 0 ? options.evaluation_samples : sum, most);
}

std::int64_t largest_evaluated(const StepPlanOptions& options) {
  return *std::ranges::max_element(options.evaluation_batches);
}

/// As evaluate_views has them, of batches that stand for all.
void run_views(TrainingSession& session, const StepPlanOptions& options) {
  ViewedBatches viewed(session.step(), evaluated_samples(options), largest_evaluated(options), false);
  Batch batch;
  for (int pass = 0; pass < evaluation_passes(session.step()); ++pass) {
    if (pass > 0) viewed.choose();
    for (const std::int64_t size : options.evaluation_batches)
      for (int i = 0; i < 2; ++i) {
        batch = allocate_batch(session.model(), size, session.step().loss());
        if (pass == 0)
          viewed.first(batch);
        else
          viewed.second(batch);
      }
  }
  viewed.finish();
}

/// As Trainer has them: the batch before is released once the next one is there.
void run_evaluation(TrainingSession& session, const StepPlanOptions& options) {
  if (options.loss.views && !options.evaluation_batches.empty()) {
    run_views(session, options);
    return (void)session.step().read_evaluation();
  }
  Batch batch;
  for (const std::int64_t size : options.evaluation_batches)
    for (int i = 0; i < 2; ++i) {
      batch = allocate_batch(session.model(), size, session.step().loss());
      MicroBatches(session.step()).evaluate(batch, false);
    }
  batch = {};
  if (!options.evaluation_batches.empty()) (void)session.step().read_evaluation();
}

/// Updates of full batches, then one that ends with each of the other sizes, then an evaluation.
void run_epoch(TrainingSession& session, const StepPlanOptions& options) {
  const std::int64_t count = options.accumulate * session.step().replicas().count();
  const auto update = [&](std::int64_t last) {
    MicroBatches(session.step()).accumulate(count, 0, [&](std::int64_t i) {
      return allocate_batch(session.model(), i + 1 < count ? options.batch : last, session.step().loss());
    });
    session.step().update();
  };
  for (int i = 0; i < 2; ++i) update(options.batch);
  for (const std::int64_t last : options.last_batches) update(last);
  run_evaluation(session, options);
}

bool has_other_sizes(const StepPlanOptions& options) {
  return !options.last_batches.empty() || !options.evaluation_batches.empty();
}

SessionOptions session_options(const StepPlanOptions& options) {
  return {.model = options.model, .optimizer = options.optimizer, .loss = options.loss, .replicas = options.replicas};
}

/// Makes the model and runs two updates, eagerly; `trace` may be null, and so may `log`, which gets the second's
/// kernels.
TracedRun run_steps(Runtime& runtime, const Graph& graph, const StepPlanOptions& options, AllocationTrace* trace,
                    kernels::KernelLog* log = nullptr) {
  const Device device = Device::meta_of(options.device);
  const auto now = [trace] { return trace == nullptr ? 0 : trace->now(); };
  BfcAllocator& memory = runtime.allocator(device);
  std::optional<TraceScope> tracing;
  if (trace != nullptr) tracing.emplace(memory, *trace);
  memory.note_phase("setup");
  TracedRun run;
  TrainingSession session(runtime, device, graph, session_options(options));
  memory.note_phase("input");
  Batch batch = allocate_batch(session.model(), options.batch, options.loss);
  for (int update = 0; update < 2; ++update) {
    if (update == 1 && !options.evaluation_batches.empty()) {
      batch = {};
      memory.note_phase("evaluation");
      run_evaluation(session, options);
      memory.note_phase("input");
      batch = allocate_batch(session.model(), options.batch, options.loss);
    }
    run.step_begin = now();
    runtime.set_kernel_log(device, update == 0 ? nullptr : log);
    run_update(session.step(), batch, options.accumulate);
    run.step_end = now();
  }
  runtime.set_kernel_log(device, nullptr);
  tracing.reset();  // what is live now lives on
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

StepShapes shapes_of(const StepPlanOptions& options) {
  StepShapes shapes{.batches = options.last_batches,
                    .evaluation_batches = options.evaluation_batches,
                    .accumulates = options.accumulate > 1};
  shapes.batches.push_back(options.batch);
  if (options.loss.views && !options.evaluation_batches.empty())
    shapes.viewed_batches = viewed_batches(*options.loss.views, evaluated_samples(options), largest_evaluated(options));
  return shapes;
}

/// The same run with `pool_bytes` reserved (0: none), and planned where that is asked for, under a limit; a limit of 0
/// is none, or, with a pool, the pool as it comes out in pages.
MemoryStats rehearse(const Graph& graph, const StepPlanOptions& options, std::uint64_t limit_bytes,
                     std::uint64_t pool_bytes, const std::shared_ptr<StepPlacements>& placements) {
  const Device device = Device::meta_of(options.device);
  Runtime runtime(RuntimeOptions{.threads = 1});
  BfcAllocator& memory = runtime.allocator(device);
  memory.set_limit(limit_bytes);
  if (memory.reserve_pool(pool_bytes) && limit_bytes == 0 && pool_bytes > 0)
    memory.set_limit(memory.stats().pool_bytes);
  TrainingSession session(runtime, device, graph, session_options(options));
  if (placements) session.step().prepare(shapes_of(options), placements);
  if (has_other_sizes(options)) {
    for (int epoch = 0; epoch < 3; ++epoch) run_epoch(session, options);
    return memory.stats();
  }
  const Batch batch = allocate_batch(session.model(), options.batch, options.loss);
  // Without plans, places of memory may still change from update to update under a tight limit, and the fit with them.
  const int updates = placements ? 2 : 5;
  for (int update = 0; update < updates; ++update) run_update(session.step(), batch, options.accumulate);
  return memory.stats();
}

std::shared_ptr<StepPlacements> placements_of(const Graph& graph, const StepPlanOptions& options) {
  if (!options.planned) return nullptr;
  return std::make_shared<StepPlacements>(graph, options.model, options.optimizer, options.loss, options.device,
                                          options.replicas);
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
  check_replicas(options.replicas);
  if (options.batch < 1 || options.accumulate < 1)
    throw Error(fmt::format("plan_step: batch and accumulate must be at least 1, got {} and {}", options.batch,
                            options.accumulate));
  for (const std::vector<std::int64_t>* sizes : {&options.last_batches, &options.evaluation_batches})
    for (const std::int64_t size : *sizes)
      if (size < 1) throw Error(fmt::format("plan_step: batches must have at least 1 sample, got {}", size));
}

}  // namespace

std::vector<std::int64_t> batch_sizes(const BatchSource& source) {
  const std::int64_t batches = source.batches_per_epoch();
  if (batches < 1) return {};
  std::vector<std::int64_t> sizes{source.size_of(0)};
  if (source.size_of(batches - 1) != sizes.front()) sizes.push_back(source.size_of(batches - 1));
  return sizes;
}

StepPlanOptions for_sources(StepPlanOptions options, const BatchSource& train, const BatchSource* validation,
                            const BatchSource* test) {
  const std::vector<std::int64_t> sizes = batch_sizes(train);
  options.batch = sizes.empty() ? train.batch_size() : sizes.front();
  options.last_batches.assign(sizes.begin() + (sizes.empty() ? 0 : 1), sizes.end());
  options.evaluation_batches.clear();
  options.evaluation_samples = 0;
  for (const BatchSource* source : {validation, test}) {
    if (source == nullptr) continue;
    for (const std::int64_t size : batch_sizes(*source)) options.evaluation_batches.push_back(size);
    options.evaluation_samples = std::max(options.evaluation_samples, source->epoch_samples());
  }
  return options;
}

StepPlan plan_step(const Graph& graph, const StepPlanOptions& options) {
  check_options(options);
  Runtime runtime(RuntimeOptions{.threads = 1});  // the trace's owners are its names
  const TracedRun run = trace_steps(runtime, graph, options);
  StepPlan plan;
  describe_peak(run, plan);
  plan.workspace_bytes =
      peak_of(run, [](const TraceInterval& i) { return i.tag.category == Category::workspace; }).second;
  describe_step(run, options.planner, plan);
  const auto placements = placements_of(graph, options);
  plan.pool_bytes = least_pool([&](std::uint64_t pool) { return rehearse(graph, options, 0, pool, placements); });
  return plan;
}

std::map<std::string, std::uint64_t> kept_bytes(const StepPlan& plan) {
  std::int64_t forward_end = std::numeric_limits<std::int64_t>::max();
  for (const StepBuffer& buffer : plan.step)
    if (buffer.phase == "backward") forward_end = std::min(forward_end, buffer.buffer.lower);
  std::map<std::string, std::uint64_t> kept;
  for (const StepBuffer& buffer : plan.step)
    if (buffer.phase == "forward" && buffer.buffer.lower < forward_end && buffer.buffer.upper > forward_end)
      kept[buffer.owner] += buffer.buffer.size;
  return kept;
}

std::uint64_t step_peak(const Graph& graph, const StepPlanOptions& options,
                        const std::function<void(const kernels::KernelLog&)>& read) {
  check_options(options);
  Runtime runtime(RuntimeOptions{.threads = 1});
  kernels::KernelLog log;
  (void)run_steps(runtime, graph, options, nullptr, read ? &log : nullptr);
  if (read) read(log);
  return runtime.allocator(Device::meta_of(options.device)).stats().peak_bytes;
}

bool step_fits(const Graph& graph, const StepPlanOptions& options, std::uint64_t limit_bytes) {
  check_options(options);
  const auto placements = placements_of(graph, options);
  const std::uint64_t pool =
      placements ? least_pool([&](std::uint64_t size) { return rehearse(graph, options, 0, size, placements); }) : 0;
  try {
    (void)rehearse(graph, options, limit_bytes, pool, placements);
  } catch (const OutOfMemory&) {
    return false;
  }
  return true;
}

std::uint64_t least_pool(const std::function<MemoryStats(std::uint64_t pool_bytes)>& rehearse) {
  constexpr int kMostTries = 64;
  const MemoryStats free_run = rehearse(0);
  std::uint64_t pool = free_run.peak_claimed_bytes;
  for (int i = 0; i < kMostTries; ++i) {
    try {
      const MemoryStats bound = rehearse(pool);
      if (bound.planned_allocations == free_run.planned_allocations) return bound.peak_pool_bytes;
    } catch (const OutOfMemory&) {  // batches of several sizes may have gaps between them
    }
    pool += std::max<std::uint64_t>(pool / 256, 1) / BfcAllocator::kAllocationUnit * BfcAllocator::kAllocationUnit +
            BfcAllocator::kAllocationUnit;
  }
  return free_run.peak_pool_bytes;
}

}  // namespace bantam
