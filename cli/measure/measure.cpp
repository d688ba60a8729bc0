// Steps on random batches, timed in windows; and their memory from the allocator's own count.
#include "bantam/cli/measure/measure.h"

#include <algorithm>
#include <chrono>

#include "bantam/base/clock.h"
#include "bantam/cli/session/algorithm_cache.h"
#include "bantam/engine/step/random_batch.h"
#include "bantam/memory/device/host_memory.h"

namespace bantam::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kResidentBatches = 8;  // so that no batch stays in a cache by being the only one
constexpr std::int64_t kWarmUpSteps = 5;
constexpr double kWindowSeconds = 0.05;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace

StepPlanOptions step_plan_options(const RunConfig& config, const StepCase& options) {
  return {.model = model_options(config, options.precision, options.recompute),
          .optimizer = config.train.optimizer,
          .loss = config.train.loss,
          .batch = options.batch,
          .accumulate = 1,
          .device = config.device};
}

StepPlanOptions train_plan_options(const RunConfig& config, const StepCase& options) {
  StepPlanOptions step = step_plan_options(config, options);
  step.accumulate = config.train.accumulate;
  return step;
}

StepSession::StepSession(const RunConfig& config, const StepCase& options, Device device, int threads,
                         AllocationTrace* trace)
    : runtime_(make_runtime(config, threads)), case_(options) {
  BfcAllocator& memory = runtime_->allocator(device);
  memory.set_trace(trace);
  memory.note_phase("setup");
  const bool planned = options.mode != StepMode::eager;
  if (planned || device.is_cpu()) {
    const std::uint64_t pool = plan_step(config.model.graph, step_plan_options(config, options)).pool_bytes;
    const std::uint64_t limit = runtime_->limit(device);
    require_host_memory(device, limit > 0 ? std::min(limit, pool) : pool);
    if (planned) (void)memory.reserve_pool(pool);
  }
  model_ = std::make_unique<Model>(*runtime_, device, config.model.graph,
                                   model_options(config, options.precision, options.recompute));
  optimizer_ = std::make_unique<Optimizer>(*model_, config.train.optimizer);
  step_ = std::make_unique<TrainingStep>(*model_, *optimizer_, config.train.loss);
  if (planned) step_->prepare({.batches = {options.batch}});
  memory.note_phase("input");
  add_batches(1);
}

StepSession::~StepSession() = default;

Batch StepSession::make_batch(std::int64_t index) const {
  Batch batch = random_batch(
      *model_, case_.batch,
      philox_key(model_->options().seed, RandomPurpose::dataset, static_cast<std::uint64_t>(index)), step_->loss());
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
    if (batches_.size() == 1 || memory().arena_bytes >= step_->arena_bytes()) continue;
    batches_.remove_last();  // it lies in what was the arena, idle between steps
    return;
  }
}

void StepSession::make_room_for_metrics(std::int64_t updates) {
  if (step_->pending_metrics() + updates > TrainingStep::kMetricRing) (void)step_->read_metrics();
}

void StepSession::update(std::int64_t micro_batches) {
  make_room_for_metrics(1);
  const Context context = model_->context(Pass::train);
  for (std::int64_t i = 0; i < micro_batches; ++i)
    step_->micro_batch(batches_.make(context, i, micro_batches), i * case_.batch, micro_batches * case_.batch);
  step_->update();
  batches_.advance(micro_batches);
}

void StepSession::start_capturing() {
  // Small steps need many a launch, so that what is between launches does not show.
  constexpr std::int64_t kSmallBatch = 256;
  const std::int64_t rounds = case_.batch <= kSmallBatch ? CapturedSteps::kMostUpdates / batches_.size() : 1;
  captured_ = std::make_unique<CapturedSteps>(*step_, batches_, 1, StepMode::captured,
                                              static_cast<int>(rounds * batches_.size()));
}

std::int64_t StepSession::run(std::int64_t count) {
  const std::int64_t launch = steps_a_launch();
  std::int64_t done = 0;
  while (done < count) {
    if (!captured_) update(1);
    make_room_for_metrics(launch);
    done += captured_ ? captured_->run(launch) : 1;
  }
  return done;
}

void StepSession::wait() const { synchronize(runtime_->stream(model_->device())); }

MemoryStats StepSession::memory() const { return runtime_->allocator(model_->device()).stats(); }

Context StepSession::training_context() const {
  Context context = model_->context(Pass::train);
  context.random.update = optimizer_->updates();
  return context;
}

StepMeasurement measure_step(const RunConfig& config, const StepCase& options, int threads, double seconds) {
  StepSession session(config, options, config.device, threads);
  AlgorithmCache algorithms(session.runtime(), config);
  session.run(kWarmUpSteps);
  session.wait();
  algorithms.save();
  StepMeasurement measured{.memory = session.memory()};
  session.add_batches(kResidentBatches);
  if (options.mode == StepMode::captured) session.start_capturing();
  (void)session.run(1);
  session.wait();
  std::int64_t steps = session.steps_a_launch();
  const auto timed = [&] {
    const Clock::time_point start = Clock::now();
    const std::int64_t done = session.run(steps);
    session.wait();
    return std::pair(seconds_since(start), static_cast<double>(done));
  };
  while (timed().first < kWindowSeconds) steps *= 2;
  std::vector<double> windows;
  const Clock::time_point start = Clock::now();
  while (windows.size() < 3 || seconds_since(start) < seconds) {
    const auto [window, done] = timed();
    windows.push_back(window / done);
  }
  const double step = median(windows);
  measured.ms_per_step = step * 1e3;
  measured.images_per_s = static_cast<double>(options.batch) / step;
  measured.windows = static_cast<std::int64_t>(windows.size());
  measured.kernels = session.kernels_a_step();
  measured.parameters = session.model().parameters().parameter_count();
  return measured;
}

nlohmann::ordered_json describe(const RunConfig& config, const StepCase& options) {
  return {{"model", config.model.name},
          {"batch", options.batch},
          {"precision", to_string(options.precision)},
          {"recompute", to_string(options.recompute)},
          {"device", to_string(config.device)}};
}

nlohmann::ordered_json categories_json(const CategoryBytes& bytes) {
  nlohmann::ordered_json object;
  for (std::size_t i = 0; i < kCategories; ++i)
    object[std::string(to_string(static_cast<Category>(i)))] = bytes[static_cast<Category>(i)];
  return object;
}

void add_memory(nlohmann::ordered_json& row, const MemoryStats& memory) {
  row["peak_bytes"] = memory.peak_bytes;
  row["pool_bytes"] = memory.peak_pool_bytes;
  row["by_category"] = categories_json(memory.by_category_at_peak);
}

void add_timing(nlohmann::ordered_json& row, const StepMeasurement& measured) {
  row["ms_per_step"] = std::round(measured.ms_per_step * 1e4) / 1e4;
  row["images_per_s"] = std::round(measured.images_per_s);
  row["windows"] = measured.windows;
  if (measured.kernels > 0) row["kernels"] = measured.kernels;
}

}  // namespace bantam::cli
