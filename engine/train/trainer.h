// Trainer: epochs of training steps over a BatchSource, evaluation after each, callbacks, and a stop that saves; and
// the table of callbacks that a configuration may name.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/config.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/error.h"
#include "bantam/engine/step/batch_source.h"
#include "bantam/engine/step/training_step.h"

BANTAM_API_BEGIN
namespace bantam {

class BANTAM_INTERNAL CapturedSteps;

/// Ends a run whose evaluations have stopped improving.
struct EarlyStopOptions {
  std::string metric = "loss";  ///< of the validation samples (value_of)
  bool larger = false;          ///< is better
  std::int64_t patience = 5;    ///< evaluations in a row without improvement after which the run ends
  double min_delta = 0;         ///< an improvement is better than the best by more than this
};

/// The evaluations' best value and the wait since. Part of a run's state: a resumed run ends at the same update.
struct EarlyStopState {
  std::uint32_t rule = 0;  ///< identifies metric and direction; where they have changed, all begins anew
  double best = 0;
  std::int64_t best_epoch = 0;  ///< from 1; 0: there was no finite value
  std::int64_t waited = 0;      ///< evaluations since
  bool operator==(const EarlyStopState&) const = default;
};

/// An evaluation of epoch `epoch` (from 1) came to `validation`. A value that is not finite is no improvement.
void note_evaluation(const EarlyStopOptions& options, const Metrics& validation, std::int64_t epoch,
                     EarlyStopState& state);
bool stops_early(const EarlyStopOptions& options, const EarlyStopState& state);
/// For people: "train.stop_early: validation loss has not improved for 5 evaluations; the best is 0.41, of epoch 9".
std::string early_stop_reason(const EarlyStopOptions& options, const EarlyStopState& state);
/// For a state file, and the way back; numbers that are none are the state before the first evaluation.
std::vector<double> early_stop_numbers(const EarlyStopState& state);
EarlyStopState early_stop_from(const std::vector<double>& numbers);

/// Where a run stands between two updates, and what the updates of its epoch have come to so far.
struct TrainerPosition {
  std::int64_t epoch = 0;   ///< from 0
  std::int64_t update = 0;  ///< done in it; may be all of them, where only the evaluation is left
  Metrics sum = {};         ///< of those updates
  /// The last evaluation between two updates came after so many, counted over all epochs; 0: there was none.
  std::int64_t evaluated = 0;
  EarlyStopState stop_early = {};
};

/// Saves a run while it trains. Called by the thread that trains, between two launches and after each epoch.
class Checkpointer {
 public:
  virtual ~Checkpointer() = default;
  /// Whether to save now, where `update` updates of `epoch` are done; (epoch + 1, 0) after an epoch's evaluation.
  virtual bool due(std::int64_t epoch, std::int64_t update) = 0;
  /// Begins to copy the state as it is after the work submitted so far; need not wait for the device.
  virtual void copy() = 0;
  /// The same moment on the host, after callbacks have heard of every update until there.
  virtual void save(const TrainerPosition& position) = 0;
};

/// How long a Trainer trains, when it evaluates, reads metrics and saves, and what it does where memory ends.
struct TrainerOptions {
  std::int64_t epochs = 1;
  std::int64_t updates =
      0;  ///< in place of epochs: the run's updates, of which its last epoch may have a part; 0: none
  /// Micro-batches an update, of each of the step's replicas; the effective batch is replicas × accumulate × the
  /// source's batch size.
  std::int64_t accumulate = 1;
  /// Metrics are read back and `on_progress` is called at most this many updates and, on slow devices, this many
  /// seconds apart. Of several ranks seconds do not count: they read after the same updates, three launches apart at
  /// most, so that all find the first update that is not finite.
  std::int64_t read_every = TrainingStep::kMetricRing;
  double read_seconds = 0.2;
  /// With a loss scale, which falls until gradients are finite: stops with NotFiniteError after this many updates in a
  /// row were skipped. Without one the first that is skipped stops the run. Updates after it change nothing, however
  /// many the device was given before the host knew.
  std::int64_t max_skipped_in_a_row = 50;
  /// Whether that error names what was not finite first: the update's batches run once more, eagerly.
  bool diagnose = true;
  /// Evaluate where there is a validation source.
  bool evaluate = true;
  /// How often: so many epochs, or updates, counted from the run's beginning. The run's end has an evaluation in any
  /// case.
  Duration evaluate_every = Duration::epochs(1);
  /// Evaluated once, at the end of a run that was not stopped; null: none. Neither this nor `validation` is looked at
  /// without `evaluate`.
  BatchSource* test = nullptr;
  /// All but eager: every shape of the run is planned before its first step (TrainingStep::prepare). Captured, whole
  /// updates run from recordings where the device makes the source's batches by itself (BatchSource::device_batches);
  /// what cannot, runs planned: sources with the host in between, short batches, evaluation.
  StepMode mode = StepMode::captured;
  /// Updates of a launch of captured steps; 0: as many as the source's batches allow.
  int updates_a_launch = 0;
  /// The values of each update, counted over all epochs, whether it was done or skipped; where one is empty, the
  /// optimizer's value, which callbacks may change. Nothing: the schedules of the optimizer's options, made for
  /// `epochs` or `updates` (OptimizerOptions::schedules; one that evaluations move begins anew in each Trainer).
  std::optional<UpdateSchedules> schedules = std::nullopt;
  /// The reaction where a micro-batch does not fit. An update is then repeated from its first batch, which is read from
  /// the source a second time; once halved, micro-batches stay so. The memory of the batch itself is not made smaller:
  /// where it does not fit beside the model, the run stops at once.
  OnOutOfMemory on_oom = OnOutOfMemory::fail;
  /// Where to begin (resume). Its update may be all of the epoch's: then only the evaluation is left.
  TrainerPosition first = {};
  /// Ends the run after an evaluation; empty: it has all of its epochs.
  std::optional<EarlyStopOptions> stop_early = std::nullopt;
  /// Updates after which the run is ended early, counted over all epochs from the run's beginning; 0: none.
  std::int64_t max_updates = 0;
  /// Null: nothing is saved on the way.
  Checkpointer* checkpointer = nullptr;
  /// `look` is called after each update whose number, counted from 1 over all epochs, is a multiple of this; 0: never.
  std::int64_t look_every = 0;
  /// With that number. Weights are those after the update, gradients those that it read; whoever looks changes nothing,
  /// and reads them in order of the model's stream. on_progress of the update follows before the next one runs.
  std::function<void(std::int64_t update)> look = {};
  /// Asked before every batch, of training and of evaluation: true stops the run as request_stop() does. Empty: never.
  std::function<bool()> stop = {};
  /// Agrees with all other ranks on a stop: all call it at the same places, before each launch of updates and each
  /// epoch, with whether this one shall stop, and it returns on all alike whether any shall. The run then stops between
  /// two launches; an evaluation under way goes on to its end. Empty: `stop` alone counts.
  std::function<bool(bool stops)> agree = {};
};

/// Metrics of consecutive updates within an epoch.
struct ProgressEvent {
  std::int64_t epoch = 0, epochs = 0;         ///< epoch counts from 0
  std::int64_t update = 0, updates = 0;       ///< updates done in this epoch, and in all of it
  std::vector<Metrics> metrics;               ///< one an update, the last is update - 1
  std::vector<UpdateReport> values;           ///< learning rate and so on, one an update
  double images_per_second = 0;               ///< since the last event
  double eta_seconds = 0;                     ///< to the end of all epochs
  double epoch_loss = 0, epoch_accuracy = 0;  ///< so far
  std::vector<MetricValue> epoch_values;      ///< so far, of metrics that the loss does not count
  double data_wait_share = 0;                 ///< of this epoch's time
};
/// An evaluation under way, after an epoch's updates or between two of them.
struct EvaluationEvent {
  std::int64_t epoch = 0, epochs = 0;   ///< epoch counts from 0; of the test samples: epochs
  std::int64_t batch = 0, batches = 0;  ///< batches passed to the device, and all
  double eta_seconds = 0;               ///< to the end of this evaluation
};
/// An evaluation that is complete.
struct EvaluatedEvent {
  std::int64_t epoch = 0, epochs = 0;    ///< epoch counts from 0
  std::int64_t update = 0, updates = 0;  ///< updates done in this epoch, and in all of it
  Metrics validation;
  double seconds = 0;
  bool ends_epoch() const { return update == updates; }
};
/// The test samples, after the run's last update.
struct TestEvent {
  std::int64_t epochs = 0;
  std::int64_t updates = 0;  ///< over all epochs
  Metrics test;
  double seconds = 0;
};
/// An epoch that is complete, its evaluation included.
struct EpochEvent {
  std::int64_t epoch = 0, epochs = 0;
  Metrics train;                  ///< of the whole epoch, wherever it was resumed
  Metrics validation;             ///< samples 0: not evaluated
  double seconds = 0;             ///< of training, evaluation not counted
  double evaluation_seconds = 0;  ///< of the one at its end
  double images_per_second = 0;
  double data_wait_share = 0;
  bool last = false;
};
/// An update ran out of memory, was rolled back, and is repeated with smaller micro-batches. Told once an update, when
/// it has gone through or nothing more can be done, however often the micro-batch was halved.
struct SmallerMicroBatchEvent {
  std::int64_t epoch = 0, update = 0;  ///< both from 0
  std::int64_t samples = 0;            ///< the most in a micro-batch from now on
  std::string reason;                  ///< the first OutOfMemory's message
};

/// The events of training, each a function to override. All calls come from the thread that runs it.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Whether it only looks on: changes neither step, model nor optimizer, and does not stop the trainer at an update of
  /// its choice. Where all callbacks do, later updates may run already while on_progress is told of some.
  virtual bool observes() const { return false; }
  virtual void on_begin() {}
  virtual void on_progress(const ProgressEvent&) {}
  /// At most every `read_seconds`, between two batches.
  virtual void on_evaluation(const EvaluationEvent&) {}
  /// After each evaluation; at an epoch's end before on_epoch_end, which has the same metrics.
  virtual void on_evaluated(const EvaluatedEvent&) {}
  virtual void on_epoch_end(const EpochEvent&) {}
  virtual void on_test(const TestEvent&) {}
  virtual void on_smaller_micro_batch(const SmallerMicroBatchEvent&) {}
  virtual void on_end() {}
};

using TrainerClock = std::chrono::steady_clock;

/// The result of a run.
struct TrainResult {
  std::int64_t epochs = 0;        ///< finished
  std::int64_t updates = 0;       ///< done, over all epochs
  double seconds = 0;             ///< of training: neither evaluation nor the recording of captured steps
  double evaluation_seconds = 0;  ///< of evaluations, that of the test samples too
  Metrics train, validation;      ///< of the last epoch; the last evaluation
  Metrics test;                   ///< samples 0: there are none, or the run was stopped before
  double images_per_second = 0;
  double data_wait_share = 0;
  bool stopped = false;                ///< by request_stop, or TrainerOptions::stop
  bool reached_max_updates = false;    ///< ended early, by TrainerOptions::max_updates
  bool stopped_early = false;          ///< by TrainerOptions::stop_early, before its last epoch
  std::int64_t epoch = 0, update = 0;  ///< position: where a resumed run would go on
};

/// The loop: epochs of updates over a source, evaluations, callbacks. Used by one thread, but for request_stop. Step,
/// sources, callbacks and whatever the options point at must outlive it.
class Trainer {
 public:
  Trainer(TrainingStep& step, BatchSource& train, BatchSource* validation, TrainerOptions options);
  ~Trainer();
  void add(Callback& callback) { callbacks_.push_back(&callback); }
  /// Runs to the end, or to a requested stop, which is heard within one batch: an update of several micro-batches is
  /// then discarded, and an evaluation is left to the run that resumes. A stop is final: a new Trainer continues.
  TrainResult run();
  /// The result of `run` so far; where it threw, what was done before. The weights are those of its position.
  const TrainResult& so_far() const { return result_; }
  /// The position of `so_far`. After `run` has thrown, metrics that were not read yet are read first, and told. Throws
  /// CommunicationError where a rank's failure has cut off updates until there: the state is none of a position then.
  TrainerPosition position();
  /// Safe from any thread and from a signal handler.
  void request_stop() { stop_.store(true, std::memory_order_relaxed); }
  /// One pass over a source without training. A stop that is requested while it runs ends it within one batch: the
  /// metrics are then of the samples until there.
  Metrics evaluate(BatchSource& source);

 private:
  /// One epoch under way.
  struct EpochState {
    std::int64_t epoch = 0;
    std::int64_t updates = 0;  ///< in the whole epoch
    std::int64_t done = 0;
    Metrics sum;
    TrainerClock::time_point start = TrainerClock::now();
    TrainerClock::time_point last_read = start;                  ///< when the last reading's metrics were there
    TrainerClock::time_point last_asked = start, asked = start;  ///< when that reading began, and the one under way
    std::int64_t first_update = 0;                               ///< where it began (resume)
    std::int64_t next_read = 0;     ///< with several ranks: updates after which metrics are read
    double seconds = 0;             ///< of its updates, once they are done
    std::int64_t samples = 0;       ///< trained on since it began
    double evaluation_seconds = 0;  ///< between its updates
  };
  StepShapes shapes() const;
  void notify_evaluated(const EvaluatedEvent& event);
  void run_epoch(std::int64_t epoch, TrainResult& result);
  void run_updates_of_epoch(EpochState& state, TrainResult& result);
  void end_epoch(EpochState& state, TrainResult& result);
  void read_rest(EpochState& state);
  void save(EpochState& state);
  std::int64_t updates_left(const EpochState& state) const;
  std::int64_t all_updates() const;
  bool has_all_updates(const EpochState& state) const;
  bool is_max_updates_first() const;
  void open_device_batches();
  bool all_observe() const;
  bool read_is_due(EpochState& state);
  bool reads_together(EpochState& state);
  void count_updates(EpochState& state, std::int64_t updates);
  std::int64_t run_updates(EpochState& state);
  std::int64_t run_updates_together(EpochState& state);
  void run_one_together(const EpochState& state, bool full);
  std::int64_t full_updates_left(const EpochState& state) const;
  std::int64_t updates_to_look(const EpochState& state) const;
  void look(EpochState& state);
  void set_values(const EpochState& state, std::int64_t updates);
  std::int64_t run_update(const EpochState& state);
  std::int64_t batches_an_update() const { return options_.accumulate * step_.replicas().replicas; }
  std::int64_t own_batches_an_update() const { return options_.accumulate * step_.replicas().count(); }
  bool has_other_ranks() const;
  int agreed_launch() const;
  std::int64_t updates_an_epoch() const;
  bool run_micro_batches(std::int64_t first_batch);
  bool stop_requested();
  bool stop_agreed();
  Metrics evaluate_while(BatchSource& source, const std::function<bool(std::int64_t done)>& go_on);
  Metrics evaluate_replicas(BatchSource& source, const std::function<bool(std::int64_t done)>& go_on);
  bool evaluate_told(BatchSource& source, std::int64_t epoch, Metrics& metrics);
  bool evaluates_after(const EpochState& state) const;
  std::int64_t updates_to_evaluation(const EpochState& state) const;
  bool evaluate_between_updates(EpochState& state, TrainResult& result);
  bool evaluate_epoch(EpochState& state, TrainResult& result);
  void evaluate_test(TrainResult& result);
  bool stops_after(std::int64_t epoch, const Metrics& validation);
  Batch next_batch(const Context& context, std::int64_t index);
  bool go_on_smaller(const EpochState& state, const OutOfMemory& error);
  void tell_smaller();
  double waited_seconds() const { return waited_before_ + train_.waited_seconds(); }
  void begin_read(EpochState& state);
  double note_read(EpochState& state) const;
  void finish_read(EpochState& state);
  void throw_known_failure() const;
  std::int32_t halt_after() const;
  [[noreturn]] void fail_not_finite(std::int64_t done, const kernels::UpdateControl& control);
  std::string describe_not_finite(std::int64_t update, const kernels::UpdateControl& control);
  void check_fits(const BatchSource& source, const char* what) const;

  TrainingStep& step_;
  BatchSource& train_;
  BatchSource* validation_;
  TrainerOptions options_;
  MicroBatches micro_batches_;
  DeviceBatches* device_batches_ = nullptr;
  std::unique_ptr<CapturedSteps> launches_;        // over them; null: batches come one by one
  std::int64_t launch_ = 1;                        // updates of a launch, on all ranks
  std::optional<SmallerMicroBatchEvent> smaller_;  // not told yet
  std::int64_t reading_ = 0;                       // updates done when the reading under way began; 0: there is none
  std::int64_t evaluated_ = 0;                     // TrainerPosition::evaluated
  double waited_before_ = 0;                       // in this epoch, before the source was last started
  std::vector<Callback*> callbacks_;
  UpdateSchedules schedules_;
  TrainResult result_;  // of `run`, kept up to date
  EpochState state_;    // of the epoch under way
  EarlyStopState stop_early_;
  float last_loss_scale_ = 1;  // of the last update that was read
  bool failed_ = false;        // with NotFiniteError: later updates were halted
  std::atomic<bool> stop_{false};
  bool agreed_ = false;  // by all ranks: they stop
};

/// Makes a callback for one run: a configuration may be read several times, and its callbacks are made once.
using CallbackMaker = std::function<std::unique_ptr<Callback>()>;

/// There is no built-in one. Register before the first configuration is read:
///
///     callbacks().add("print_epochs", [](ConfigMap&) -> CallbackMaker {
///       return [] { return std::make_unique<PrintEpochs>(); };
///     });
Registry<Reader<CallbackMaker>>& callbacks();

/// `callbacks: [NAME, {NAME: {options}}, …]`, in their order; none where the key is missing. Throws ConfigError.
std::vector<CallbackMaker> read_callbacks(ConfigMap& section);

}  // namespace bantam
BANTAM_API_END
