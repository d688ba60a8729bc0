// TrainingRun: everything that one run of training holds, made in order, trained and saved.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "bantam/engine/step/training_session.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/session/algorithm_cache.h"
#include "bantam/run/session/metrics_log.h"
#include "bantam/run/session/position.h"
#include "bantam/run/session/run_observer.h"

namespace bantam::run {

/// Plans the run before anything is read or reserved, so that what does not fit is refused at once; then reserves the
/// planned pool, opens the data and makes model, optimizer and step. Used by one thread.
class TrainingRun {
 public:
  /// `config` is settled and has data. `resumed`: the folder of the run to go on with, whose state is loaded; null: a
  /// new run begins. Configuration and observer must outlive the run. Throws ConfigError, DataError, OutOfMemory.
  TrainingRun(const RunConfig& config, int threads, const RunDirectory* resumed, RunObserver& observer);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains to the end or until `stop` (may be empty) says so, and saves into the directory. After an error the
  /// training so far is saved too, except where gradients were not finite and an earlier state exists; then it is
  /// thrown.
  TrainResult train(const RunDirectory& directory, std::function<bool()> stop, std::span<Callback* const> callbacks);

  const RunPlan& plan() const { return plan_; }
  Runtime& runtime() const { return *runtime_; }
  std::int64_t parameter_count() const { return session_.model().parameters().parameter_count(); }
  /// Samples an update.
  std::int64_t effective_batch() const { return data_.train->batch_size() * config_.train.accumulate; }

 private:
  Position beginning() const;
  void settle_limit();
  void warm_up(std::int64_t batch);
  Schedule schedule() const;
  TrainerOptions trainer_options(std::function<bool()> stop) const;
  void save(const TrainResult& result, const RunDirectory& directory);
  void rescue(const TrainResult& done, const RunDirectory& directory, MetricsLog& log) noexcept;

  const RunConfig& config_;
  bool resumed_;
  RunObserver& observer_;
  RunPlan plan_;  // before anything is read: a model that does not fit the data is refused
  std::unique_ptr<Runtime> runtime_;
  AlgorithmCache algorithms_;  // before anything runs
  OpenedData data_;
  TrainingSession session_;
  StateRegistry state_;
  Position position_;
};

}  // namespace bantam::run
