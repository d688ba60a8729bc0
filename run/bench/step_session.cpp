// Building the session, and running its steps one by one or in captured launches.
#include "bantam/run/bench/step_session.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/step/random_batch.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/memory/device/host_memory.h"

namespace bantam::run {

StepSession::StepSession(const RunConfig& config, const StepCase& options, Device device, int threads,
                         AllocationTrace* trace, Communicator* ranks)
    : runtime_(make_runtime(config, threads)), case_(options), accumulate_(config.train.accumulate) {
  BfcAllocator& memory = runtime_->allocator(device);
  memory.set_trace(trace);
  memory.note_phase("setup");
  const bool planned = options.mode != StepMode::eager;
  if (planned || device.is_cpu()) {
    const std::uint64_t pool = plan_step(config.model.graph, train_plan_options(config, options)).pool_bytes;
    const std::uint64_t limit = runtime_->limit(device);
    require_host_memory(device, limit > 0 ? std::min(limit, pool) : pool);
    if (planned) (void)memory.reserve_pool(pool);
  }
  ReplicaOptions replicas = replica_options(config);
  replicas.ranks = ranks;
  session_ = std::make_unique<TrainingSession>(
      *runtime_, device, config.model.graph,
      SessionOptions{.model = model_options(config, options.precision, options.recompute),
                     .optimizer = config.train.optimizer,
                     .loss = config.train.loss,
                     .replicas = replicas});
  if (planned) session_->step().prepare({.batches = {options.batch}, .accumulates = accumulate_ > 1});
  memory.note_phase("input");
  add_batches(1);
}

StepSession::~StepSession() = default;

Batch StepSession::make_batch(std::int64_t index) const {
  Batch batch =
      random_batch(model(), case_.batch,
                   philox_key(model().options().seed, RandomPurpose::dataset, static_cast<std::uint64_t>(index)),
                   session_->step().loss());
  batch.index = index;
  return batch;
}

void StepSession::add_batches(std::int64_t count) {
  while (batches_.size() < count) {
    try {
      batches_.add(make_batch(batches_.size()));
    } catch (const OutOfMemory&) {
      if (batches_.size() == 0) throw;
      return;
    }
    if (batches_.size() == 1 || memory().arena_bytes >= session_->step().arena_bytes()) continue;
    batches_.remove_last();  // it lies in what was the arena, idle between steps
    return;
  }
}

void StepSession::keep_batches(std::int64_t count) {
  while (batches_.size() > count) batches_.remove_last();
}

void StepSession::make_room_for_metrics(std::int64_t updates) {
  if (session_->step().unsynchronised_metrics() + updates > TrainingStep::kMetricRing)
    (void)session_->step().read_metrics();
}

void StepSession::update(std::int64_t accumulate) {
  make_room_for_metrics(1);
  const std::int64_t micro_batches = accumulate * session_->step().replicas().count();
  const Context context = model().context(Pass::train);
  MicroBatches(session_->step()).accumulate(micro_batches, 0, [&](std::int64_t i) {
    return batches_.make(context, i, micro_batches);
  });
  session_->step().update();
  batches_.advance(micro_batches);
}

void StepSession::start_capturing() {
  // Small steps need many a launch, so that what is between launches does not show.
  constexpr std::int64_t kSmallBatch = 256;
  const std::int64_t micro_batches = accumulate_ * session_->step().replicas().count();
  const std::int64_t most = CapturedSteps::kMostUpdates / (batches_.size() * micro_batches);
  const std::int64_t rounds = case_.batch <= kSmallBatch ? std::max<std::int64_t>(1, most) : 1;
  captured_ = std::make_unique<CapturedSteps>(session_->step(), batches_, micro_batches, StepMode::captured,
                                              static_cast<int>(rounds * batches_.size()));
}

/// Runs one launch and returns its number of updates: with several ranks all of them, whatever this one can replay.
std::int64_t StepSession::run_launch(std::int64_t updates) {
  if (session_->step().replicas().ranks == nullptr) return captured_->run(updates);
  if (captured_->replay(updates)) return updates;
  for (std::int64_t i = 0; i < updates; ++i) captured_->run_once();
  return updates;
}

std::int64_t StepSession::run(std::int64_t count) {
  const std::int64_t launch = steps_a_launch();
  std::int64_t done = 0;
  while (done < count) {
    if (!captured_) update(accumulate_);
    make_room_for_metrics(launch);
    done += captured_ ? run_launch(launch) : 1;
  }
  return done;
}

void StepSession::wait() const { synchronize(runtime_->stream(model().device())); }

MemoryStats StepSession::memory() const { return runtime_->allocator(model().device()).stats(); }

Context StepSession::training_context() const {
  Context context = model().context(Pass::train);
  context.random.update = session_->optimizer().updates();
  return context;
}

}  // namespace bantam::run
