// A run in short, on stand-ins: the trainer itself over excerpts of the epochs.
#include "bantam/run/fit/run_plan.h"

#include <algorithm>
#include <optional>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/train/device_batches.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/fit/rehearsal_runtime.h"

namespace bantam::run {
namespace {

/// The first and the last batches of a source's epochs.
class ExcerptSource : public BatchSource, public DeviceBatches {
 public:
  ExcerptSource(BatchSource& whole, std::int64_t first, std::int64_t last)
      : whole_(whole), first_(first), skipped_(whole.batches_per_epoch() - first - last) {}

  std::vector<TensorFacts> tensors() const override { return whole_.tensors(); }
  std::int64_t batch_size() const override { return whole_.batch_size(); }
  std::int64_t batches_per_epoch() const override { return whole_.batches_per_epoch() - skipped_; }
  std::int64_t size_of(std::int64_t index) const override { return whole_.size_of(place(index)); }
  std::int64_t epoch_samples() const override { return whole_.epoch_samples(); }
  void set_share(std::int64_t first, std::int64_t count, std::int64_t of) override {
    whole_.set_share(first, count, of);
    count_ = count;
    of_ = of;
  }
  void start(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = epoch;
    next_ = first_batch;
    passed_ = 0;
    whole_.start(epoch, place(first_batch) / of_ * of_);
  }
  bool next(const Context& context, Batch& batch) override {
    if (next_ == first_ && passed_ == 0 && skipped_ > 0) whole_.start(epoch_, place(next_) / of_ * of_);
    if (++passed_ == count_) {
      next_ += of_;
      passed_ = 0;
    }
    return whole_.next(context, batch);
  }
  DeviceBatches* device_batches(const Context& context) override {
    on_device_ = whole_.device_batches(context);
    return on_device_ != nullptr ? this : nullptr;
  }

  std::int64_t left() const override {
    return next_ < first_ && skipped_ > 0 ? (first_ - next_) / of_ * count_ : on_device_->left();
  }
  std::int64_t most_at_once() const override { return on_device_->most_at_once(); }
  Batch make(const Context& context, std::int64_t i, std::int64_t count) override {
    return on_device_->make(context, i, count);
  }
  void advance(std::int64_t count) override {
    on_device_->advance(count);
    next_ += count / count_ * of_;
    if (next_ == first_ && skipped_ > 0) whole_.start(epoch_, place(next_));
  }

 private:
  std::int64_t place(std::int64_t index) const { return index < first_ ? index : index + skipped_; }

  BatchSource& whole_;
  DeviceBatches* on_device_ = nullptr;
  std::int64_t first_, skipped_;
  std::int64_t epoch_ = 0, next_ = 0;
  std::int64_t count_ = 1, of_ = 1;  // of so many batches, the share has so many
  std::int64_t passed_ = 0;          // of those that are at next_
};

/// Batches of one source that can be alive at one time, and a few to spare.
std::int64_t window_of(const PipelineOptions& pipeline) {
  constexpr std::int64_t kFoundAtRunTime = 8, kSpare = 3;
  return std::max(pipeline.prefetch.depth.value_or(kFoundAtRunTime), pipeline.prefetch.workers.value_or(0) + 1) +
         kSpare;
}

/// An excerpt with every kind of update that the epoch has and as many full batches alive at one time; and the batches
/// of a replica's update in it: in a long update, all but the first need the same memory.
struct Excerpt {
  std::int64_t first = 0, last = 0, accumulate = 1;

  Excerpt(std::int64_t batches, std::int64_t full_accumulate, std::int64_t window, std::int64_t replicas = 1) {
    accumulate = std::min(full_accumulate, window);
    const std::int64_t full = full_accumulate * replicas, update = accumulate * replicas;
    const std::int64_t rest = batches % full, updates = batches / full;
    last = rest > 0 ? std::min(rest, replicas > 1 ? update - 1 : update) : std::min(batches, update);
    const std::int64_t enough = 2 + window / update;
    first = std::min(rest > 0 ? updates : updates - 1, enough) * update;
  }
};

/// Whether its last evaluation comes when batches of an epoch's rest may lie ready.
bool ends_within_epoch(const RunConfig& config) {
  const std::int64_t batch = config.data->pipeline.batch_size, updates = config.train.updates;
  return updates > 0 && batch > 0 && updates % updates_per_epoch(config, batch) != 0;
}

/// Without placements the run is eager: where in the arena things lie does not change what is in use.
MemoryStats rehearse(const RunConfig& config, std::uint64_t pool_bytes, std::shared_ptr<StepPlacements> placements) {
  RehearsalRuntime rehearsal(config, pool_bytes);
  Runtime& runtime = rehearsal.runtime();
  const Device device = rehearsal.device();
  const OpenedData data = open_data(runtime, *config.data, device, config.seed);
  require_one_size(config);
  require_model_fits(config, data.train->image_shape(), data.train->classes());
  TrainingSession session(runtime, device, config.model.graph, session_options(config));
  const std::int64_t window = window_of(config.data->pipeline);
  const Excerpt training(data.train->batches_per_epoch(), config.train.accumulate, window, config.train.replicas);
  const auto evaluated = [&](BatchSource& source) {
    const Excerpt evaluation(source.batches_per_epoch(), 1, window);
    return ExcerptSource(source, evaluation.first, evaluation.last);
  };
  ExcerptSource train(*data.train, training.first, training.last);
  ExcerptSource validation = evaluated(*data.validation);
  std::optional<ExcerptSource> test;
  if (data.test != nullptr) test.emplace(evaluated(*data.test));
  // Between updates batches of training lie ready: an evaluation after each of them has the most.
  const bool between = config.train.evaluate_every.unit == Duration::Unit::updates || ends_within_epoch(config);
  const bool planned = placements != nullptr;
  if (planned) session.step().prepare({}, std::move(placements));
  Trainer(session.step(), train, &validation,
          {.epochs = std::min<std::int64_t>(config.train.epochs, 2),
           .accumulate = training.accumulate,
           .evaluate = config.train.evaluate,
           .evaluate_every = between ? Duration::updates(1) : Duration::epochs(1),
           .test = test ? &*test : nullptr,
           .mode = planned ? StepMode::planned : StepMode::eager,
           .schedules = UpdateSchedules{}})  // which may not be made for so few updates
      .run();
  return rehearsal.stats();
}

}  // namespace

bool has_batches(const RunConfig& config, std::int64_t batch) {
  return config.data && (!config.data->pipeline.drop_last || epoch_samples(*config.data) >= batch);
}

RunPlan plan_run(const RunConfig& config) {
  const ModelOptions model = model_options(config);
  RunPlan plan{.placements = std::make_shared<StepPlacements>(config.model.graph, model, config.train.optimizer,
                                                              config.train.loss, config.device,
                                                              session_options(config).replicas)};
  const MemoryStats eager = rehearse(config, 0, nullptr);
  plan.peak_bytes = eager.peak_bytes;
  plan.by_category = eager.by_category_at_peak;
  plan.pool_bytes = least_pool([&](std::uint64_t pool) { return rehearse(config, pool, plan.placements); });
  plan.arena_bytes = plan.placements->arena_bytes();
  return plan;
}

std::uint64_t run_peak(const RunConfig& config) { return rehearse(config, 0, nullptr).peak_bytes; }

}  // namespace bantam::run
