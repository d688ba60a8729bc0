// TrainingRun: everything that one run of training holds, made in order, trained and saved.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/log/run_logs.h"
#include "bantam/run/ranks/run_ranks.h"
#include "bantam/run/train/algorithm_cache.h"
#include "bantam/run/train/disk_room.h"
#include "bantam/run/train/metrics_log.h"
#include "bantam/run/train/position.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/run_observer.h"
#include "bantam/run/train/run_saver.h"

namespace bantam::run {

/// A wish to stop that came while a run was starting: nothing was trained, and an earlier state stays where it is.
class StoppedBeforeTraining : public Error {
 public:
  StoppedBeforeTraining() : Error("stopped before the training began") {}
};

/// The state that a run goes on from: a checkpoint, or, where there is none yet, nothing but its folder.
struct Resume {
  std::vector<Checkpoint> checkpoints = {};  ///< the first that is sound counts
  bool accepts_changes = false;              ///< keys that decide what an update computes may have changed
};

/// Where a run is kept, and who trains it.
struct RunPlace {
  const RunDirectory* directory = nullptr;  ///< null: of a rank other than 0, which writes nothing
  RunRanks ranks = {};
  /// On ranks other than 0: updates between two histograms of rank 0, where launches end on all ranks.
  std::int64_t histogram_every = 0;
  DiskCheck disk = {};  ///< before anything is written
};

/// Plans the run before anything is read or reserved, so that what does not fit is refused at once; then reserves the
/// planned pool, opens the data and makes model, optimizer and step. Used by one thread.
class TrainingRun {
 public:
  /// `config` is decided, and this rank's. `resume`: the state of the directory's run is loaded; null: a new run
  /// begins. Other ranks begin with rank 0's state, whatever that is. Configuration, place and observer must outlive
  /// the run; `stop` may be empty. Throws ConfigError, DataError, OutOfMemory, StoppedBeforeTraining.
  TrainingRun(const RunConfig& config, int threads, const RunPlace& place, const Resume* resume,
              const std::function<bool()>& stop, RunObserver& observer);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains to the end or until `stop` (may be empty) says so, and saves into the directory: on the way as
  /// `checkpoint` says, and at the end. After an error the training so far is saved, too, except where gradients were
  /// not finite and an earlier checkpoint exists; then it is thrown. `record` is the run's as it begins.
  /// `trained`, which may be empty, is called when all ranks have ended their last update, before rank 0 saves.
  TrainResult train(RunRecord record, std::function<bool()> stop, std::span<Callback* const> callbacks,
                    const std::function<void()>& trained = {});
  /// Trains beside rank 0 on a rank without a folder, and saves nothing.
  TrainResult run_as_worker(std::function<bool()> stop);

  /// Removes what a run that was killed has done after the checkpoint that this one goes on from: later checkpoints,
  /// then lines of metrics that are written again. Where epochs have another number of updates now, that checkpoint
  /// gets another number (CheckpointFolder::renumber). Throws DataError.
  void discard_after_checkpoint();
  /// Writes what a finished run lacks that was killed after its last checkpoint. Throws DataError.
  void complete();
  /// Whether the weights in the folder of a finished run are those that it ended with. Throws DataError.
  bool has_its_weights() const;

  /// Whether the run has all of its epochs (or updates, or max_updates) already: there is nothing to train.
  bool is_finished() const;
  /// Whether it is, by train.stop_early, before its last epoch.
  bool stopped_early() const;
  /// Why a finished run has ended before its last epoch; empty where it has all of them.
  std::string reason() const;
  /// The update that the run goes on from, over all epochs.
  std::int64_t first_update() const { return position_.epoch * updates_per_epoch() + position_.update; }
  const Position& position() const { return position_; }
  const RunPlan& plan() const { return plan_; }
  Runtime& runtime() const { return *runtime_; }
  /// Samples that `on_error: skip` has replaced; null where the first one is an error.
  const BrokenSamples* broken() const { return data_.broken.get(); }
  std::int64_t parameter_count() const { return session_.model().parameters().parameter_count(); }
  /// TrainingStep::transport.
  std::string transport() const { return transport_; }
  /// Samples an update.
  std::int64_t effective_batch() const {
    return data_.train->batch_size() * config_.train.accumulate * config_.train.replicas;
  }

 private:
  void add_own(Trainer& trainer, std::unique_ptr<Callback> callback);
  void add_last(Trainer& trainer);
  void make_initial_state(const Resume* resume);
  void share_state();
  Position initial_position() const;
  std::int64_t updates_per_epoch() const;
  std::int64_t updates_of_run() const;
  bool has_all_updates() const;
  /// The weights that the configuration names.
  void load_own_weights();
  void load(const Resume& resume);
  void load_checkpoint(const Checkpoint& checkpoint, bool accepts_changes);
  void check_origin(const Checkpoint& checkpoint, const CheckpointFacts& saved, bool accepts_changes) const;
  void cut_logs();
  void prepare_device();
  void warm_up_all();
  void warm_up(std::int64_t batch);
  void warm_up_evaluation(std::int64_t batch);
  void make_schedules();
  std::int64_t updates_of_schedules() const;
  void warn_of_other_length() const;
  bool schedules_follow_epochs() const;
  std::function<bool(bool)> agreement() const;
  TrainerOptions trainer_options(std::function<bool()> stop);
  /// Where a run that failed has come to; nothing: its state is that of no position, and why.
  struct EndOfFailed {
    std::optional<TrainerPosition> position;
    std::string reason;
  };
  static EndOfFailed end_of_failed(Trainer& trainer) noexcept;
  void rescue(Trainer& trainer, RunSaver& saver, const std::exception& error, const EndOfFailed& end) noexcept;
  void restore_best() const;
  void save(Trainer& trainer, RunSaver& saver, const TrainResult& result);
  void end(const TrainResult& result, RunSaver& saver, bool out_of_time);

  /// The files of the run; asked for on rank 0 alone.
  const RunDirectory& directory() const { return *place_.directory; }

  const RunConfig& config_;
  const RunPlace place_;
  RunObserver& observer_;
  RunPlan plan_;  // before anything is read: a model that does not fit the data is refused
  std::unique_ptr<Runtime> runtime_;
  AlgorithmCache algorithms_;  // before anything runs
  OpenedData data_;
  TrainingSession session_;
  StateRegistry state_;
  Position position_;
  MetricsLog log_;
  RunLogs logs_;
  CheckpointFacts facts_;
  UpdateSchedules schedules_;
  std::optional<Checkpoint> loaded_;
  std::vector<std::unique_ptr<Callback>> own_;  // of this run
  std::string transport_;
  bool resumes_;
  double whiten_seconds_ = 0;  // of making weights from the data
};

}  // namespace bantam::run
