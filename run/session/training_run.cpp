// Making, training and saving a run.
#include "bantam/run/session/training_run.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/memory/device/host_memory.h"

namespace bantam::run {
namespace {

/// Writes the configuration when the first updates are done: a run that fails before has no file.
class BeginningOfRun : public Callback {
 public:
  BeginningOfRun(const RunDirectory& directory, const RunConfig& config, RunObserver& observer)
      : directory_(directory), config_(config), observer_(observer) {}
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent&) override {
    if (std::exchange(done_, true)) return;
    try {
      write_file_atomically(directory_.config(), config_.document.resolved_yaml());
    } catch (const DataError& error) {  // it is tried again with the weights
      observer_.on_warning(error.what());
    }
  }

 private:
  const RunDirectory& directory_;
  const RunConfig& config_;
  RunObserver& observer_;
  bool done_ = false;
};

/// Refuses a pool that the host cannot hold. A run that may go on in smaller micro-batches gets a limit instead:
/// without one the system would end it before anything is refused.
void settle_host(const RunConfig& config, const RunPlan& plan, Runtime& runtime, RunObserver& observer) {
  const std::uint64_t limit = runtime.limit(config.device);
  const std::uint64_t bytes = limit > 0 ? std::min(limit, plan.pool_bytes) : plan.pool_bytes;
  try {
    // Saving copies the state: weights and the optimizer's moments.
    require_host_memory(config.device, bytes,
                        plan.by_category[Category::parameter] + plan.by_category[Category::optimizer]);
  } catch (const OutOfMemory& refused) {
    const std::uint64_t left = refused.facts().limit_bytes;
    if (config.memory.on_oom == OnOutOfMemory::fail || left == 0) throw;
    observer.on_warning(fmt::format("{}; the pool is limited to {}", refused.what(), format_byte_size(left)));
    runtime.set_limit(config.device, left);
  }
}

/// Reserves the planned pool at once; a limit below it is refused before anything runs. Where the device has no such
/// contiguous range now, the run reserves memory on demand, unless that was ruled out.
std::unique_ptr<Runtime> make_reserved_runtime(const RunConfig& config, const RunPlan& plan, int threads,
                                               RunObserver& observer) {
  std::unique_ptr<Runtime> runtime =
      make_runtime(config, threads, [&observer](std::string_view message) { observer.on_warning(message); });
  if (config.memory.on_oom == OnOutOfMemory::fail) runtime->require_pool(config.device, plan.pool_bytes);
  settle_host(config, plan, *runtime, observer);
  if (config.memory.growth)
    (void)runtime->allocator(config.device).reserve_pool(plan.pool_bytes);
  else
    runtime->reserve(config.device, plan.pool_bytes);
  return runtime;
}

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, int threads, const RunDirectory* resumed, RunObserver& observer)
    : config_(config),
      resumed_(resumed != nullptr),
      observer_(observer),
      plan_(plan_run(config)),
      runtime_(make_reserved_runtime(config, plan_, threads, observer)),
      algorithms_(*runtime_, config, resumed == nullptr ? "" : resumed->algorithms(), plan_.pool_bytes),
      data_(open_data(*runtime_, *config.data, config.device, config.seed)),
      session_(*runtime_, config.device, config.model.graph, session_options(config)) {
  session_.step().prepare({}, plan_.placements);
  session_.model().register_state(state_);
  session_.optimizer().register_state(state_);
  settle_limit();
  position_ = beginning();
  position_.register_state(state_);
  if (resumed == nullptr) return;
  load_state(state_, runtime_->stream(config.device), resumed->state());
  position_ = resumed_position(position_, beginning(), config, resumed->path());
}

Position TrainingRun::beginning() const {
  return {.effective_batch = effective_batch(),
          .batches = data_.train->batches_per_epoch(),
          .seed = static_cast<std::int64_t>(config_.seed)};
}

/// Under a limit on a GPU the run's kernels are loaded and counted before the first batch, not in mid-epoch.
void TrainingRun::settle_limit() {
  if (!config_.device.is_cuda() || runtime_->limit(config_.device) == 0) return;
  const BatchSource& train = *data_.train;
  const std::int64_t full = train.batch_size(), last = train.size_of(train.batches_per_epoch() - 1);
  warm_up(full);
  if (last != full) warm_up(last);
  algorithms_.end_timing();
  runtime_->settle_limit(config_.device);
}

/// A warm-up that does not fit does not end a run that may go on in smaller micro-batches.
void TrainingRun::warm_up(std::int64_t batch) {
  const bool accumulates = config_.train.accumulate > 1;
  if (config_.memory.on_oom == OnOutOfMemory::fail)
    session_.step().warm_up(batch, accumulates);
  else
    (void)warm_up_what_fits(session_.step(), batch, accumulates);
}

/// Over the run as it was configured, wherever it was resumed.
Schedule TrainingRun::schedule() const {
  if (!config_.train.schedule) return {};
  const std::int64_t accumulate = config_.train.accumulate;
  const std::int64_t per_epoch = (data_.train->batches_per_epoch() + accumulate - 1) / accumulate;
  return config_.train.schedule({.learning_rate = config_.train.optimizer.learning_rate,
                                 .updates = per_epoch * config_.train.epochs,
                                 .updates_per_epoch = per_epoch});
}

TrainerOptions TrainingRun::trainer_options(std::function<bool()> stop) const {
  return {.epochs = config_.train.epochs,
          .accumulate = config_.train.accumulate,
          .evaluate = config_.train.evaluate,
          .mode = config_.train.mode,
          .learning_rate = schedule(),
          .on_oom = config_.memory.on_oom,
          .first_epoch = position_.epoch,
          .first_update = position_.update,
          .stop = std::move(stop)};
}

TrainResult TrainingRun::train(const RunDirectory& directory, std::function<bool()> stop,
                               std::span<Callback* const> callbacks) {
  Trainer trainer(session_.step(), *data_.train, data_.validation.get(), trainer_options(std::move(stop)));
  MetricsLog log(directory.metrics(), config_.train.log_every, runtime_->allocator(config_.device),
                 [this](std::string_view text) { observer_.on_warning(text); });
  BeginningOfRun begun(directory, config_, observer_);
  if (!resumed_) trainer.add(begun);  // a resumed run keeps its configuration until there is state to go with a new one
  trainer.add(log);
  for (Callback* callback : callbacks) trainer.add(*callback);
  std::vector<std::unique_ptr<Callback>> own;  // that the configuration names
  for (const CallbackMaker& make : config_.train.callbacks) trainer.add(*own.emplace_back(make()));
  TrainResult result;
  try {
    result = trainer.run();
  } catch (const NotFiniteError&) {
    observer_.on_trained();
    if (!resumed_) rescue(trainer.so_far(), directory, log);  // else the state from before is the better one
    throw;
  } catch (...) {
    observer_.on_trained();
    rescue(trainer.so_far(), directory, log);
    throw;
  }
  observer_.on_trained();
  save(result, directory);
  observer_.on_saved();
  return result;
}

/// All files of a run. Each is tried, whatever became of the others; throws the first failure at the end.
void TrainingRun::save(const TrainResult& result, const RunDirectory& directory) {
  position_.epoch = result.epoch;
  position_.update = result.update;
  std::exception_ptr failure;
  const auto attempt = [&failure](const auto& write) {
    try {
      write();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  attempt([&] { make_folders(directory.path()); });  // somebody may have moved it: what was trained is not lost
  const auto configuration = [&] { write_file_atomically(directory.config(), config_.document.resolved_yaml()); };
  const auto algorithms = [&] { algorithms_.save_with_run(directory.algorithms()); };
  const auto state = [&] { save_state(state_, runtime_->stream(config_.device), directory.state()); };
  if (!resumed_) attempt(configuration), attempt(algorithms);  // before the state, which is resumed with them
  attempt([&] { save_weights(session_.model(), directory.weights()); });
  attempt([&] { algorithms_.save(); });
  if (resumed_)  // the state from before, if it has to stay, keeps the configuration that it was made with
    attempt([&] { state(), configuration(), algorithms(); });
  else
    attempt(state);
  if (failure) std::rethrow_exception(failure);
}

/// Of a run that failed: saves what it has done before, if anything, and says so.
void TrainingRun::rescue(const TrainResult& done, const RunDirectory& directory, MetricsLog& log) noexcept {
  if (done.updates == 0) return;
  try {
    log.on_end();
    save(done, directory);
    observer_.on_saved();
    observer_.on_warning(fmt::format("the run failed in epoch {} after {} of its updates, which are saved in {}",
                                     done.epoch + 1, done.update, directory.path().string()));
  } catch (const std::exception& error) {
    observer_.on_warning(fmt::format("the run failed, and what it has trained could not be saved: {}", error.what()));
  }
}

}  // namespace bantam::run
