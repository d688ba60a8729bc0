// RunSaver: a run's checkpoints on its way, written beside the training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bantam/data/delivery/broken_samples.h"
#include "bantam/engine/train/state_snapshot.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/log/run_logs.h"
#include "bantam/run/train/algorithm_cache.h"
#include "bantam/run/train/background_task.h"
#include "bantam/run/train/best_weights.h"
#include "bantam/run/train/checkpoint_schedule.h"
#include "bantam/run/train/metrics_log.h"
#include "bantam/run/train/position.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/run_observer.h"
#include "bantam/run/train/run_record.h"

namespace bantam::run {

/// The parts of a run that are saved, and where; all of them outlive the saver.
struct SavedRun {
  const RunConfig& config;
  const RunDirectory& directory;
  Position& position;  ///< part of the state that is saved; the saver moves it
  MetricsLog& log;
  RunLogs& logs;
  const AlgorithmCache& algorithms;
  const CheckpointFacts& facts;  ///< fingerprint, schedule, and of a checkpoint that was loaded seconds and best
  RunObserver& observer;
};

/// Saves when CheckpointSchedule says so, and after the best evaluation so far. Copies of the state are taken between
/// two launches; files are written by a thread of its own. A file that cannot be written is reported at once and tried
/// again with the next checkpoint; training goes on. Used by the thread that trains.
class RunSaver : public Checkpointer, public Callback {
 public:
  /// `position` is where the run begins; the weights of its best evaluation are kept (keep_best_weights). Throws
  /// OutOfMemory where there is no memory for copies, DataError where the best weights cannot be read, written or
  /// removed.
  RunSaver(const SavedRun& run, RunRecord record, std::unique_ptr<StateSnapshot> snapshot,
           std::int64_t updates_per_epoch);

  // Checkpointer
  bool due(std::int64_t epoch, std::int64_t update) override;
  void copy() override;
  void save(const TrainerPosition& position) override;
  // Callback
  bool observes() const override { return true; }
  void on_evaluated(const EvaluatedEvent& event) override;
  void on_test(const TestEvent& event) override;

  /// Waits for the checkpoint under way, if there is one, and says what came of it.
  void end_writing();
  /// At the run's end: a checkpoint of this position unless there is one, and the folder's weights and configuration.
  /// Waits until all is on the disk. Throws DataError where it cannot be; every file is tried.
  void finish(const TrainerPosition& position);
  /// Samples that were replaced, for the next `note`.
  void set_broken(const BrokenSamples& broken);
  /// More of RunRecord::compute_seconds.
  void add_compute_seconds(double seconds) { record_.compute_seconds += seconds; }
  /// Writes run.json. A failure is reported once.
  void note(RunState state, const std::string& reason);
  /// Checkpoints on the way that could not be written.
  std::int64_t failures() const { return failures_; }

 private:
  /// A checkpoint under way.
  struct Job {
    CheckpointFacts facts;
    bool best = false;  ///< the evaluation is the best so far
  };
  std::int64_t updates_of(std::int64_t epoch, std::int64_t update) const { return epoch * updates_per_epoch_ + update; }
  void keep_best();
  void note_best();
  void save_host();
  void begin_writing();
  void poll();
  void write(const CheckpointFacts& facts, bool best, bool last);
  void sync_logs() const;
  void write_best();
  void write_last() const;
  void try_best();
  CheckpointFacts facts_of(const TrainerPosition& position);
  void move_to(const TrainerPosition& position);
  void warn_of(const std::string& failure);
  void report_not_removed();
  double seconds() const;

  SavedRun run_;
  RunRecord record_;
  std::int64_t updates_per_epoch_;
  CheckpointSchedule::Clock::time_point begun_ = CheckpointSchedule::Clock::now();
  CheckpointSchedule schedule_;
  std::unique_ptr<StateSnapshot> snapshot_;
  AlgorithmMap algorithms_;         // with it
  BestEvaluation snapshot_best_;    // with it
  std::string best_sha256_;         // of weights-best.safetensors; used by whoever writes
  std::int64_t best_updates_ = -1;  // of the run, at the best evaluation; -1: not known
  std::optional<Job> copying_, writing_;
  std::optional<CheckpointFacts> written_;  // the last one that is complete
  bool best_is_new_ = false;                // the weights are those of the best evaluation, and not yet copied
  bool lacks_best_ = false;  // the snapshot is that of the best evaluation, whose weights could not be written
  bool best_is_lost_ = false;
  bool tested_ = false;      // since the last copy
  std::string not_removed_;  // the last write's failure to remove older checkpoints
  bool failing_ = false, record_fails_ = false;
  std::int64_t failures_ = 0;
  BackgroundTask task_;  // last: its thread uses what is above
};

}  // namespace bantam::run
