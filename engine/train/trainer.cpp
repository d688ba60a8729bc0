// The loop: micro-batches to updates, metrics read back now and then, evaluation, callbacks.
#include "bantam/engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/step/replica_tree.h"
#include "bantam/engine/train/captured_steps.h"
#include "bantam/engine/train/not_finite.h"
#include "bantam/kernels/update/update.h"

namespace bantam {

namespace {

/// Updates after so many skipped ones are halted in this scope.
class HaltScope {
 public:
  HaltScope(Optimizer& optimizer, std::int32_t skipped) : optimizer_(optimizer) { optimizer_.set_halt_after(skipped); }
  ~HaltScope() {
    try {
      optimizer_.set_halt_after(0);
    } catch (const Error&) {  // a broken device: the call that broke it has thrown
    }
  }
  HaltScope(const HaltScope&) = delete;
  HaltScope& operator=(const HaltScope&) = delete;

 private:
  Optimizer& optimizer_;
};

/// Removes the updates that were halted, from the first on.
void drop_halted(ProgressEvent& event) {
  const auto first = std::ranges::find(event.values, true, &UpdateReport::halted);
  const auto left = static_cast<std::size_t>(first - event.values.begin());
  event.update -= static_cast<std::int64_t>(event.values.size() - left);
  event.values.resize(left);
  event.metrics.resize(left);
}

}  // namespace

Trainer::Trainer(TrainingStep& step, BatchSource& train, BatchSource* validation, TrainerOptions options)
    : step_(step), train_(train), validation_(validation), options_(options), micro_batches_(step) {
  if (options_.epochs < 0) throw ConfigError(fmt::format("train.epochs must not be negative, got {}", options_.epochs));
  if (options_.updates < 0)
    throw ConfigError(fmt::format("train.updates must not be negative, got {}", options_.updates));
  if (options_.accumulate < 1)
    throw ConfigError(fmt::format("train.accumulate must be at least 1, got {}", options_.accumulate));
  if (train_.batches_per_epoch() < 1)
    throw DataError("the training data have no batch: fewer samples than the batch size, and drop_last");
  if (options_.max_skipped_in_a_row < 1)
    throw ConfigError(fmt::format("max_skipped_in_a_row must be at least 1, got {}", options_.max_skipped_in_a_row));
  if (updates_an_epoch() < 1)
    throw DataError(
        fmt::format("an epoch has {} batches, fewer than an update's {} (train.replicas {} x accumulate {})",
                    train_.batches_per_epoch(), batches_an_update(), step_.replicas().replicas, options_.accumulate));
  const ReplicaOptions& replicas = step_.replicas();
  if (replicas.count() < replicas.replicas)
    train_.set_share(replicas.first() * options_.accumulate, own_batches_an_update(), batches_an_update());
  check_on_oom(options_.on_oom, step_.model().graph());
  check_fits(train_, "training");
  step_.set_full_batch(train_.size_of(0));
  if (validation_ != nullptr) check_fits(*validation_, "validation");
  if (options_.test != nullptr) check_fits(*options_.test, "test");
  if (options_.evaluate_every.count < 1 || options_.evaluate_every.unit == Duration::Unit::seconds)
    throw ConfigError(
        fmt::format("train.evaluate.every: expected epochs or updates, got {}", to_string(options_.evaluate_every)));
  if (options_.look_every < 0 || (options_.look_every > 0 && !options_.look))
    throw ConfigError(fmt::format("look_every must be 0, or positive with a look, got {}", options_.look_every));
  options_.read_every = std::clamp<std::int64_t>(options_.read_every, 1, TrainingStep::kMetricRing);
  if (options_.updates > 0) options_.epochs = (options_.updates + updates_an_epoch() - 1) / updates_an_epoch();
  if (options_.schedules)
    schedules_ = *options_.schedules;
  else if (options_.epochs > 0)
    schedules_ =
        schedules_of(step_.optimizer().options(), {.updates = all_updates(), .updates_per_epoch = updates_an_epoch()});
}

Trainer::~Trainer() = default;

std::int64_t Trainer::updates_an_epoch() const {
  return updates_of(train_.batches_per_epoch(), options_.accumulate, step_.replicas().replicas);
}

/// The number of updates of the whole run.
std::int64_t Trainer::all_updates() const {
  return options_.updates > 0 ? options_.updates : updates_an_epoch() * options_.epochs;
}

/// With TrainerOptions::updates: all of them, of which the last epoch may have a part.
bool Trainer::has_all_updates(const EpochState& state) const {
  return options_.updates > 0 && state.epoch * state.updates + state.done >= options_.updates;
}

bool Trainer::is_max_updates_first() const { return options_.max_updates > 0 && options_.max_updates < all_updates(); }

/// Schedules come first: callbacks may read the values that follow.
void Trainer::notify_evaluated(const EvaluatedEvent& event) {
  for (const auto& schedule : schedules_.evaluated()) schedule->evaluated(event.validation);
  for (Callback* callback : callbacks_) callback->on_evaluated(event);
}

void Trainer::check_fits(const BatchSource& source, const char* what) const {
  step_.check_fits(source.tensors(), what);
}

StepShapes Trainer::shapes() const {
  const auto sizes = [](const BatchSource& source) {
    const std::int64_t batches = source.batches_per_epoch();
    return batches > 0 ? std::vector{source.size_of(0), source.size_of(batches - 1)} : std::vector<std::int64_t>();
  };
  StepShapes shapes{.batches = sizes(train_), .accumulates = options_.accumulate > 1};
  if (!options_.evaluate) return shapes;
  const std::optional<EvaluationViews>& views = step_.loss().views;
  for (const BatchSource* source : {validation_, options_.test}) {
    if (source == nullptr) continue;
    for (const std::int64_t size : sizes(*source)) shapes.evaluation_batches.push_back(size);
    if (!views) continue;
    for (const std::int64_t size : viewed_batches(*views, source->epoch_samples(), source->batch_size()))
      shapes.viewed_batches.push_back(size);
  }
  return shapes;
}

TrainResult Trainer::run() {
  TrainResult& result = result_ = {};
  result.epoch = options_.first.epoch;
  result.update = options_.first.update;
  state_ = {.epoch = result.epoch, .done = result.update, .sum = options_.first.sum};
  reading_ = 0;
  evaluated_ = options_.first.evaluated;
  failed_ = false;
  stop_early_ = options_.first.stop_early;
  if (options_.mode != StepMode::eager) step_.prepare(shapes());
  const HaltScope halts(step_.optimizer(), halt_after());
  open_device_batches();
  for (Callback* callback : callbacks_) callback->on_begin();
  double samples = 0, waited = 0;
  // A run that had stopped early already has its test left at most.
  result.stopped_early = options_.stop_early && options_.first.update == 0 && options_.first.epoch < options_.epochs &&
                         stops_early(*options_.stop_early, stop_early_);
  for (std::int64_t epoch = options_.first.epoch; epoch < options_.epochs && !result.stopped && !result.stopped_early;
       ++epoch) {
    if (stop_agreed()) {  // asked for between epochs: the last epoch's results stand
      result.stopped = true;
      break;
    }
    const double before = result.seconds;
    run_epoch(epoch, result);
    samples += static_cast<double>(state_.samples);  // not those before a resume
    waited += result.data_wait_share * (result.seconds - before);
    if (result.reached_max_updates) break;
  }
  if (result.seconds > 0) {
    result.images_per_second = samples / result.seconds;
    result.data_wait_share = waited / result.seconds;
  }
  evaluate_test(result);
  for (Callback* callback : callbacks_) callback->on_end();
  return result;
}

/// Within the epoch, the run and max_updates.
std::int64_t Trainer::updates_left(const EpochState& state) const {
  const std::int64_t end = is_max_updates_first() ? options_.max_updates : all_updates();
  return std::clamp<std::int64_t>(end - (state.epoch * state.updates + state.done), 0, state.updates - state.done);
}

void Trainer::run_epoch(std::int64_t epoch, TrainResult& result) {
  const bool first = epoch == options_.first.epoch;
  state_ = {.epoch = epoch,
            .updates = updates_an_epoch(),
            .done = first ? options_.first.update : 0,
            .sum = first ? options_.first.sum : Metrics(),
            .first_update = first ? options_.first.update : 0,
            .next_read = first ? options_.first.update : 0};
  EpochState& state = state_;
  const std::int64_t samples_before = state.sum.samples;
  waited_before_ = 0;
  train_.start(epoch, std::min(state.done * batches_an_update(), train_.batches_per_epoch()));
  run_updates_of_epoch(state, result);
  const double seconds = seconds_since(state.start) - state.evaluation_seconds;
  result.seconds += seconds;
  result.train = state.sum;
  result.data_wait_share = seconds > 0 ? waited_seconds() / seconds : 0;
  state.seconds = seconds;
  state.samples = state.sum.samples - samples_before;
  // An epoch that ends with skipped updates and a loss that is no number has diverged, however short it was.
  if (!std::isfinite(state.sum.loss))
    if (const kernels::UpdateControl control = step_.optimizer().control(); control.skipped_in_a_row > 0)
      fail_not_finite(state.done, control);
  result.epoch = epoch;
  result.update = state.done;
  if (state.done == state.updates) {
    end_epoch(state, result);
    result.reached_max_updates =
        options_.max_updates > 0 && epoch + 1 < options_.epochs && (epoch + 1) * state.updates >= options_.max_updates;
    return;
  }
  const bool ended = updates_left(state) == 0 && updates_to_evaluation(state) > 0;
  result.reached_max_updates = ended && !has_all_updates(state);
  result.stopped = !ended;
}

void Trainer::run_updates_of_epoch(EpochState& state, TrainResult& result) {
  const bool observed = all_observe();
  while (!stop_agreed()) {
    if (updates_to_evaluation(state) == 0) {
      if (!evaluate_between_updates(state, result)) break;
      continue;
    }
    if (updates_left(state) == 0) break;
    const std::int64_t updates = run_updates(state);
    count_updates(state, updates);
    if (reading_ > 0) finish_read(state);  // the device goes on with what has been given to it
    if (updates > 0 && options_.look_every > 0 && updates_to_look(state) == options_.look_every) look(state);
    if (options_.checkpointer != nullptr && updates > 0 && options_.checkpointer->due(state.epoch, state.done))
      save(state);
    if (!read_is_due(state)) continue;
    begin_read(state);
    if (!observed) finish_read(state);
  }
  read_rest(state);
}

void Trainer::count_updates(EpochState& state, std::int64_t updates) {
  state.done += updates;
  result_.updates += updates;
  result_.epoch = state.epoch;
  result_.update = state.done;
}

void Trainer::read_rest(EpochState& state) {
  if (reading_ > 0) finish_read(state);
  if (step_.unsynchronised_metrics() == 0) return;
  begin_read(state);
  finish_read(state);
}

/// From 1 to look_every, after which it begins anew.
std::int64_t Trainer::updates_to_look(const EpochState& state) const {
  return options_.look_every - (state.epoch * state.updates + state.done) % options_.look_every;
}

void Trainer::look(EpochState& state) {
  begin_read(state);
  options_.look(state.epoch * state.updates + state.done);
  finish_read(state);
}

/// Copies of weights and metrics are in the stream before the next launch is: the device does not wait for the files.
void Trainer::save(EpochState& state) {
  begin_read(state);
  options_.checkpointer->copy();
  finish_read(state);
  throw_known_failure();
  options_.checkpointer->save({.epoch = state.epoch,
                               .update = state.done,
                               .sum = state.sum,
                               .evaluated = evaluated_,
                               .stop_early = stop_early_});
}

TrainerPosition Trainer::position() {
  if (state_.done != result_.update || state_.epoch != result_.epoch)  // after an epoch
    return {.epoch = result_.epoch, .update = result_.update, .evaluated = evaluated_, .stop_early = stop_early_};
  for (int readings = 2; readings > 0; --readings) {  // the one under way, and the rest
    try {
      read_rest(state_);
    } catch (const NotFiniteError&) {  // which `run` has thrown
    }
  }
  return {.epoch = result_.epoch,
          .update = result_.update,
          .sum = state_.sum,
          .evaluated = evaluated_,
          .stop_early = stop_early_};
}

void Trainer::end_epoch(EpochState& state, TrainResult& result) {
  const TrainerClock::time_point evaluation = TrainerClock::now();
  // Stopped in the evaluation, a run goes on with it: after all of the epoch's updates.
  const Metrics before = std::exchange(result.validation, {});
  result.stopped = !evaluate_epoch(state, result);
  const bool evaluated = result.validation.samples > 0;
  if (!evaluated) result.validation = before;
  if (result.stopped) return;
  result.epoch = state.epoch + 1;
  result.update = 0;
  ++result.epochs;
  result.stopped_early = evaluated && stops_after(state.epoch, result.validation);
  const EpochEvent event{.epoch = state.epoch,
                         .epochs = options_.epochs,
                         .train = state.sum,
                         .validation = evaluated ? result.validation : Metrics(),
                         .seconds = state.seconds,
                         .evaluation_seconds = seconds_since(evaluation),
                         .images_per_second = static_cast<double>(state.samples) / std::max(state.seconds, 1e-9),
                         .data_wait_share = result.data_wait_share,
                         .last = state.epoch + 1 == options_.epochs || result.stopped_early};
  for (Callback* callback : callbacks_) callback->on_epoch_end(event);
  if (options_.checkpointer == nullptr || !options_.checkpointer->due(result.epoch, 0)) return;
  options_.checkpointer->copy();
  options_.checkpointer->save({.epoch = result.epoch, .update = 0, .evaluated = evaluated_, .stop_early = stop_early_});
}

/// Whether the run ends early after the evaluation of `epoch`.
bool Trainer::stops_after(std::int64_t epoch, const Metrics& validation) {
  if (!options_.stop_early) return false;
  note_evaluation(*options_.stop_early, validation, epoch + 1, stop_early_);
  return epoch + 1 < options_.epochs && stops_early(*options_.stop_early, stop_early_);
}

bool Trainer::all_observe() const {
  return std::ranges::all_of(callbacks_, [](const Callback* callback) { return callback->observes(); });
}

// Launches whose metrics are read at once, where reading holds nothing up: the host must not need longer for them than
// the device for the launches ahead.
constexpr std::int64_t kLaunchesARead = 3;

/// Whether metrics have waited long enough, or the next updates would find no room for theirs.
bool Trainer::read_is_due(EpochState& state) {
  if (has_other_ranks()) return reads_together(state);
  const std::int64_t unsynchronised = step_.unsynchronised_metrics();
  if (state.done == state.updates || seconds_since(state.last_read) >= options_.read_seconds) return true;
  if (state.epoch == options_.first.epoch && state.sum.samples == options_.first.sum.samples)
    return true;  // says that the run has begun
  if (launches_ && all_observe() && unsynchronised >= kLaunchesARead * launch_) return true;
  return unsynchronised >= options_.read_every ||
         (launch_ <= options_.read_every && unsynchronised + launch_ > options_.read_every);
}

/// After updates that all ranks know: the first launch of an epoch, so many later ones, and the epoch's last.
bool Trainer::reads_together(EpochState& state) {
  if (state.done < state.next_read && state.done < state.updates) return false;
  const std::int64_t room = TrainingStep::kMetricRing - launch_;
  state.next_read = state.done + std::min({options_.read_every, kLaunchesARead * launch_, room});
  return true;
}

void Trainer::begin_read(EpochState& state) {
  if (step_.unsynchronised_metrics() == 0) return;  // an update that is to be repeated
  state.asked = TrainerClock::now();
  step_.begin_reading();
  reading_ = state.done;
}

/// Seconds that the updates of the reading that has ended took. On the CPU they were done when it began. A GPU did them
/// some time between its beginning and its end; after a late end the next one comes at once, so the longer of both
/// intervals counts.
double Trainer::note_read(EpochState& state) const {
  const TrainerClock::time_point now = TrainerClock::now();
  const auto between = [](TrainerClock::time_point from, TrainerClock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  double seconds = between(std::exchange(state.last_asked, state.asked), state.asked);
  if (step_.model().device().is_cuda()) seconds = std::max(seconds, between(state.last_read, now));
  state.last_read = now;
  return std::max(seconds, 1e-9);
}

void Trainer::finish_read(EpochState& state) {
  if (reading_ == 0) return;
  kernels::UpdateControl control;
  ProgressEvent event{
      .epoch = state.epoch, .epochs = options_.epochs, .update = std::exchange(reading_, 0), .updates = state.updates};
  event.metrics = step_.finish_reading(&control, &event.values);
  if (std::ranges::any_of(event.values, &UpdateReport::skipped)) throw_known_failure();
  drop_halted(event);
  if (event.metrics.empty() || failed_) return;
  last_loss_scale_ = event.values.back().loss_scale;
  std::int64_t samples = 0;
  for (const Metrics& metrics : event.metrics) {
    merge(state.sum, metrics);
    samples += metrics.samples;
  }
  const double epoch_seconds = std::max(seconds_since(state.start) - state.evaluation_seconds, 1e-9);
  event.images_per_second = static_cast<double>(samples) / note_read(state);
  event.epoch_loss = state.sum.loss;
  event.epoch_accuracy = state.sum.accuracy;
  event.epoch_values = state.sum.values;
  event.data_wait_share = waited_seconds() / epoch_seconds;
  const auto updates_left = static_cast<double>(all_updates() - state.epoch * state.updates - event.update);
  const double measured = static_cast<double>(event.update - state.first_update);
  event.eta_seconds = measured > 0 ? epoch_seconds / measured * updates_left : 0;
  for (Callback* callback : callbacks_) callback->on_progress(event);
  if (control.skipped_in_a_row >= halt_after()) fail_not_finite(event.update, control);
}

/// With several ranks on GPUs, throws where another rank's failure is known. An exchange that it cuts off makes
/// an update that is not finite, and is skipped; but the host knows of the failure before its device does.
void Trainer::throw_known_failure() const {
  if (has_other_ranks() && step_.model().device().is_cuda()) step_.replicas().ranks->exchange({}, {});
}

/// A loss scale that is too large is no reason to end a run: it falls.
std::int32_t Trainer::halt_after() const {
  if (!step_.model().options().precision.scales_loss()) return 1;
  return static_cast<std::int32_t>(std::min<std::int64_t>(options_.max_skipped_in_a_row, 1 << 30));
}

/// `done` updates of the epoch have run, of which the last was skipped; the device may have halted others since.
void Trainer::fail_not_finite(std::int64_t done, const kernels::UpdateControl& control) {
  failed_ = true;
  result_.updates -= state_.done - done;
  state_.done = result_.update = done;
  (void)step_.read_metrics();
  throw NotFiniteError(describe_not_finite(done - 1, control));
}

std::string Trainer::describe_not_finite(std::int64_t update, const kernels::UpdateControl& control) {
  NotFiniteUpdate found{.epoch = state_.epoch,
                        .update = update,
                        .skipped_in_a_row = control.skipped_in_a_row,
                        .loss_scale = last_loss_scale_};
  const std::int64_t first = update * batches_an_update();
  const std::int64_t end = std::min(first + batches_an_update(), train_.batches_per_epoch());
  std::vector<std::int64_t> numbers;
  for (std::int64_t batch = first; batch < end; ++batch) {
    found.samples += train_.size_of(batch);
    const std::vector<std::int64_t> more = train_.sample_numbers(state_.epoch, batch);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  if (static_cast<std::int64_t>(numbers.size()) == found.samples) found.of_dataset = numbers;
  NotFiniteSearch search(step_);
  const auto replay = [&]() -> std::string {
    try {
      train_.start(state_.epoch, first);
      step_.look_into(search.hooks(), last_loss_scale_, [&] { (void)run_micro_batches(first); });
      return "when it ran once more, all was finite";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  found.reason = options_.diagnose ? replay() : "TrainerOptions::diagnose is off";
  found.what = search.what();
  found.places = search.places();
  found.wrong_label = search.wrong_label();
  return not_finite_message(found);
}

/// Before an update or an epoch.
bool Trainer::stop_agreed() {
  if (!options_.agree) return stop_requested();
  if (options_.stop && options_.stop()) request_stop();
  agreed_ = agreed_ || options_.agree(stop_.load(std::memory_order_relaxed));
  return agreed_;
}

bool Trainer::stop_requested() {
  if (options_.agree) return agreed_;
  if (options_.stop && options_.stop()) request_stop();
  return stop_.load(std::memory_order_relaxed);
}

Metrics Trainer::evaluate(BatchSource& source) {
  const bool stopped_before = stop_requested();  // of a run that is over: its results may still be asked for
  return evaluate_while(source, [&](std::int64_t) { return stopped_before || !stop_requested(); });
}

/// The same, told on the way. False where a stop came before the end; `metrics` are then as before.
bool Trainer::evaluate_told(BatchSource& source, std::int64_t epoch, Metrics& metrics) {
  const TrainerClock::time_point start = TrainerClock::now();
  TrainerClock::time_point told = start;
  EvaluationEvent event{
      .epoch = epoch, .epochs = options_.epochs, .batches = source.batches_per_epoch() * evaluation_passes(step_)};
  bool stopped = false;
  const Metrics all = evaluate_while(source, [&](std::int64_t done) {
    stopped = stopped || (done < event.batches && stop_requested());
    if (stopped) return false;
    if (done == 0 || seconds_since(told) < options_.read_seconds) return true;
    told = TrainerClock::now();
    event.batch = done;
    event.eta_seconds = seconds_since(start) / static_cast<double>(done) * static_cast<double>(event.batches - done);
    for (Callback* callback : callbacks_) callback->on_evaluation(event);
    return true;
  });
  result_.evaluation_seconds += seconds_since(start);
  if (!stopped) metrics = all;
  return !stopped;
}

/// Whether an evaluation follows the epoch's updates so far.
bool Trainer::evaluates_after(const EpochState& state) const {
  if (validation_ == nullptr || !options_.evaluate) return false;
  const bool ends_epoch = state.done == state.updates;
  if ((ends_epoch && state.epoch + 1 == options_.epochs) || has_all_updates(state)) return true;
  if (options_.evaluate_every.unit == Duration::Unit::epochs)
    return ends_epoch && (state.epoch + 1) % options_.evaluate_every.count == 0;
  return (state.epoch * state.updates + state.done) % options_.evaluate_every.count == 0;
}

/// Updates to the next evaluation within the epoch: 0 where it is due and was not done; all that are left where there
/// is none.
std::int64_t Trainer::updates_to_evaluation(const EpochState& state) const {
  const std::int64_t left = state.updates - state.done, done = state.epoch * state.updates + state.done,
                     every = options_.evaluate_every.count;
  std::int64_t next = std::max<std::int64_t>(left, 1);
  if (validation_ == nullptr || !options_.evaluate) return next;
  if (state.done > 0 && left > 0 && evaluates_after(state) && evaluated_ != done) return 0;
  if (options_.evaluate_every.unit == Duration::Unit::updates) next = std::min(next, every - done % every);
  return options_.updates > done ? std::min(next, options_.updates - done) : next;
}

/// False where a stop came before the end.
bool Trainer::evaluate_between_updates(EpochState& state, TrainResult& result) {
  read_rest(state);
  const TrainerClock::time_point start = TrainerClock::now();
  const bool whole = evaluate_told(*validation_, state.epoch, result.validation);
  const double seconds = seconds_since(start);
  state.evaluation_seconds += seconds;
  state.last_read = state.last_asked = TrainerClock::now();
  if (!whole) return false;
  evaluated_ = state.epoch * state.updates + state.done;
  const EvaluatedEvent event{.epoch = state.epoch,
                             .epochs = options_.epochs,
                             .update = state.done,
                             .updates = state.updates,
                             .validation = result.validation,
                             .seconds = seconds};
  notify_evaluated(event);
  if (options_.checkpointer != nullptr && options_.checkpointer->due(state.epoch, state.done)) save(state);
  return true;
}

/// After an epoch's updates, where an evaluation is due. False where a stop came before its end.
bool Trainer::evaluate_epoch(EpochState& state, TrainResult& result) {
  if (!evaluates_after(state)) return true;
  const TrainerClock::time_point start = TrainerClock::now();
  if (!evaluate_told(*validation_, state.epoch, result.validation)) return false;
  const EvaluatedEvent event{.epoch = state.epoch,
                             .epochs = options_.epochs,
                             .update = state.done,
                             .updates = state.updates,
                             .validation = result.validation,
                             .seconds = seconds_since(start)};
  notify_evaluated(event);
  return true;
}

/// Evaluates the test samples at a run's end. A run that is stopped here resumes with this evaluation.
void Trainer::evaluate_test(TrainResult& result) {
  if (options_.test == nullptr || !options_.evaluate || result.stopped) return;
  const TrainerClock::time_point start = TrainerClock::now();
  result.stopped = !evaluate_told(*options_.test, options_.epochs, result.test);
  if (result.stopped) return;
  const TestEvent event{.epochs = options_.epochs,
                        .updates = result.epoch * updates_an_epoch() + result.update,
                        .test = result.test,
                        .seconds = seconds_since(start)};
  for (Callback* callback : callbacks_) callback->on_test(event);
}

namespace {

/// Drops what an evaluation had counted before its error, so that it is not part of the next one.
void forget_evaluation(TrainingStep& step) noexcept {
  try {
    (void)step.take_evaluation_sums();
  } catch (const std::exception&) {  // the device has failed: there is no next one, and the first error is told
  }
}

}  // namespace

/// Runs the batches of `source`, for as long as `go_on` says so before each; on the weights' averages where they are
/// what is evaluated.
Metrics Trainer::evaluate_while(BatchSource& source, const std::function<bool(std::int64_t done)>& go_on) try {
  const Context context = step_.model().context(Pass::evaluate).at(step_.model().runtime().intern("input"));
  const std::optional<EmaOptions>& ema = step_.optimizer().options().ema;
  std::optional<AveragedWeights> averages;
  if (ema && ema->evaluate) averages.emplace(step_.optimizer());
  if (step_.replicas().replicas > 1) return evaluate_replicas(source, go_on);
  const bool may_halve = options_.on_oom != OnOutOfMemory::fail;
  if (step_.loss().views) {
    (void)evaluate_views(step_, source, source.epoch_samples(), may_halve, go_on);
    return step_.read_evaluation();
  }
  source.start(0, 0);
  Batch batch;
  for (std::int64_t done = 0; go_on(done) && source.next(context, batch); ++done)
    micro_batches_.evaluate(batch, may_halve);
  batch = {};
  return step_.read_evaluation();
} catch (...) {
  forget_evaluation(step_);
  throw;
}

/// Each replica has a part of the batches and sums of its own, which are added as those of updates are.
Metrics Trainer::evaluate_replicas(BatchSource& source, const std::function<bool(std::int64_t done)>& go_on) {
  const Context context = step_.model().context(Pass::evaluate).at(step_.model().runtime().intern("input"));
  const ReplicaOptions& replicas = step_.replicas();
  const std::int64_t batches = source.batches_per_epoch(), first = replicas.first();
  const auto begin_of = [&](std::int64_t replica) { return replica * batches / replicas.replicas; };
  std::vector<std::vector<double>> sums;
  const bool may_halve = options_.on_oom != OnOutOfMemory::fail;
  std::optional<ViewedBatches> viewed;
  if (step_.loss().views) viewed.emplace(step_, source.epoch_samples(), source.batch_size(), may_halve);
  source.start(0, begin_of(first));
  std::int64_t done = 0;
  for (std::int64_t replica = first; replica < first + replicas.count(); ++replica) {
    Batch batch;
    for (; done < begin_of(replica + 1) - begin_of(first) && go_on(done) && source.next(context, batch); ++done) {
      if (viewed)
        viewed->first(batch);
      else
        micro_batches_.evaluate(batch, may_halve);
    }
    sums.push_back(step_.take_evaluation_sums());
  }
  (void)go_on(done);
  return step_.evaluation_from(tree_sum_of(blocks_of_all(replicas, std::move(sums))));
}

// The updates of an epoch: several a launch where the device makes their batches, else one by one, and in smaller
// micro-batches where memory ends.

namespace {

/// The memory of a batch itself was refused: it is not made smaller by smaller micro-batches.
struct BatchDoesNotFit : OutOfMemory {
  explicit BatchDoesNotFit(const OutOfMemory& error)
      : OutOfMemory(
            fmt::format("{}\n  This is the batch itself, for which smaller micro-batches cannot help: lower the batch "
                        "size and raise accumulate.",
                        error.what()),
            error.facts()) {}
};

}  // namespace

void Trainer::open_device_batches() {
  const Context context = step_.model().context(Pass::train).at(step_.model().runtime().intern("input"));
  const TrainerClock::time_point drawing = TrainerClock::now();
  device_batches_ = train_.device_batches(context);
  result_.seconds = seconds_since(drawing);  // places of the first epoch are drawn there
  if (has_other_ranks()) launch_ = agreed_launch();
  if (device_batches_ == nullptr) return;
  launches_ =
      std::make_unique<CapturedSteps>(step_, *device_batches_, own_batches_an_update(), options_.mode,
                                      has_other_ranks() ? static_cast<int>(launch_) : options_.updates_a_launch);
  launch_ = launches_->updates_a_launch();
  if (micro_batches_.most() > 0) launches_->split(micro_batches_.most());
}

/// Ranks that this one exchanges sums with.
bool Trainer::has_other_ranks() const { return step_.replicas().ranks != nullptr && step_.replicas().dealt.size() > 1; }

/// The fewest that a rank's batches allow, of those whose device makes them. The others run as many updates one by one.
int Trainer::agreed_launch() const {
  const bool captures = options_.mode == StepMode::captured && step_.model().device().is_cuda();
  int mine = 0;
  if (device_batches_ != nullptr) mine = std::max(1, options_.updates_a_launch);
  if (mine > 0 && captures && options_.updates_a_launch == 0)
    mine = CapturedSteps::most_updates(*device_batches_, own_batches_an_update());
  int fewest = 0;
  for (const std::vector<std::byte>& bytes : all_gather(*step_.replicas().ranks, std::as_bytes(std::span(&mine, 1)))) {
    int other = 0;
    std::memcpy(&other, bytes.data(), sizeof(other));
    if (other > 0) fewest = fewest == 0 ? other : std::min(fewest, other);
  }
  return std::max(1, fewest);
}

/// Runs one or more updates and returns how many are still to be counted: 0 after one that is repeated in smaller
/// micro-batches, or that a stop has interrupted.
std::int64_t Trainer::run_updates(EpochState& state) {
  if (has_other_ranks()) return run_updates_together(state);
  std::int64_t most = 0;
  if (launches_)
    most =
        std::min({updates_left(state), updates_to_evaluation(state), device_batches_->left() / own_batches_an_update(),
                  options_.read_every - step_.unsynchronised_metrics()});
  if (options_.look_every > 0) most = std::min(most, updates_to_look(state));
  if (most <= 0) return run_update(state);
  set_values(state, launches_->next_updates(most));
  try {
    const std::int64_t done = launches_->run(most);
    tell_smaller();
    return done;
  } catch (const OutOfMemory& error) {
    if (!go_on_smaller(state, error)) throw;
  }
  train_.start(state.epoch, state.done * batches_an_update());
  return 0;
}

/// A launch, or one update where fewer are left: as many as on every other rank, whatever this one replays. Memory that
/// ends is an error here, since the other ranks do not repeat the update.
std::int64_t Trainer::run_updates_together(EpochState& state) {
  const std::int64_t full = full_updates_left(state);
  std::int64_t most = std::min({updates_left(state), updates_to_evaluation(state), full});
  if (options_.look_every > 0) most = std::min(most, updates_to_look(state));
  const std::int64_t count = most >= launch_ ? launch_ : 1;
  if (launches_ && full > 0) {
    set_values(state, count);
    if (launches_->replay(count)) return count;
  }
  for (std::int64_t left = count; left > 1; --left) {
    run_one_together(state, full > 0);
    count_updates(state, 1);  // each for itself: the next one may throw
  }
  run_one_together(state, full > 0);
  return 1;
}

void Trainer::run_one_together(const EpochState& state, bool full) {
  if (!launches_ || !full) {
    (void)run_update(state);
    return;
  }
  set_values(state, 1);
  launches_->run_once();
}

/// Updates of full batches that the epoch has left: the device makes those by itself.
std::int64_t Trainer::full_updates_left(const EpochState& state) const {
  const std::int64_t batches = train_.batches_per_epoch();
  const std::int64_t full = train_.size_of(batches - 1) == train_.batch_size() ? batches : batches - 1;
  return full / batches_an_update() - state.done;
}

void Trainer::set_values(const EpochState& state, std::int64_t updates) {
  if (!schedules_.any()) return;
  Optimizer& optimizer = step_.optimizer();
  std::vector<UpdateValues> values(static_cast<std::size_t>(updates), optimizer.values());
  std::int64_t update = state.epoch * state.updates + state.done;
  for (UpdateValues& at : values) at = schedules_.at(update++, at);
  optimizer.set_values(values);
}

std::int64_t Trainer::run_update(const EpochState& state) {
  set_values(state, 1);
  const std::int64_t first = state.done * batches_an_update();
  for (;;) {
    try {
      const bool whole = run_micro_batches(first);
      if (whole) step_.update();
      tell_smaller();
      return whole ? 1 : 0;
    } catch (const BatchDoesNotFit&) {
      tell_smaller();
      throw;
    } catch (const OutOfMemory& error) {
      if (!go_on_smaller(state, error)) throw;
    }
    waited_before_ += train_.waited_seconds();
    train_.start(state.epoch, first);
  }
}

/// After a failed update, of which nothing stays: halves the micro-batch where that is wanted and possible.
bool Trainer::go_on_smaller(const EpochState& state, const OutOfMemory& error) {
  if (options_.on_oom == OnOutOfMemory::fail) return false;
  step_.discard();
  if (!micro_batches_.halve(train_.batch_size())) {
    tell_smaller();
    return false;
  }
  if (launches_) launches_->split(micro_batches_.most());
  if (!smaller_) smaller_ = {.epoch = state.epoch, .update = state.done, .reason = error.what()};
  smaller_->samples = micro_batches_.most();
  return true;
}

void Trainer::tell_smaller() {
  if (!smaller_) return;
  const SmallerMicroBatchEvent event = *std::exchange(smaller_, std::nullopt);
  for (Callback* callback : callbacks_) callback->on_smaller_micro_batch(event);
}

/// Where memory ends, it is told apart whether the step was in the way (a batch may be made while it runs) or whether
/// there is no room for the batch with nothing of the step alive.
Batch Trainer::next_batch(const Context& context, std::int64_t index) {
  Batch batch;
  try {
    if (!train_.next(context, batch))
      throw DataError(fmt::format("the data source ended before batch {} of its epoch", index));
  } catch (const OutOfMemory& error) {
    if (options_.on_oom == OnOutOfMemory::fail) throw;
    step_.discard();
    const MemoryStats memory = step_.model().runtime().allocator(step_.model().device()).stats();
    if (memory.limit_bytes > 0 && memory.in_use_bytes + error.facts().requested_bytes > memory.limit_bytes)
      throw BatchDoesNotFit(error);
    throw;
  }
  return batch;
}

/// False where a stop came between two of them: nothing of the update stays.
bool Trainer::run_micro_batches(std::int64_t first_batch) {
  const std::int64_t end = std::min(first_batch + batches_an_update(), train_.batches_per_epoch());
  const auto samples = [this](std::int64_t from, std::int64_t to) {
    std::int64_t sum = 0;
    for (std::int64_t batch = from; batch < to; ++batch) sum += train_.size_of(batch);
    return sum;
  };
  const ReplicaOptions& replicas = step_.replicas();  // this rank's batches are in the midst of the update's
  const std::int64_t own = first_batch + replicas.first() * options_.accumulate;
  const std::int64_t own_end = std::min(own + replicas.count() * options_.accumulate, end);
  const Context context = step_.model().context(Pass::train).at(step_.model().runtime().intern("input"));
  const auto next = [&](std::int64_t i) -> std::optional<Batch> {
    if (i > 0 && stop_requested()) return std::nullopt;
    return next_batch(context, own + i);
  };
  return micro_batches_.accumulate(own_end - own, samples(first_batch, end), next, samples(first_batch, own));
}

}  // namespace bantam
