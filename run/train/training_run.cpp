// Making, training and saving a run.
#include "bantam/run/train/training_run.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/engine/optimizers/moving_average.h"
#include "bantam/engine/step/evaluation_views.h"
#include "bantam/engine/step/random_batch.h"
#include "bantam/engine/train/tensor_files.h"
#include "bantam/run/fit/plan_target.h"
#include "bantam/run/fit/rehearsal_runtime.h"
#include "bantam/run/ranks/data_lines.h"
#include "bantam/run/ranks/stop_agreement.h"
#include "bantam/run/train/best_weights.h"
#include "bantam/run/train/run_checks.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

/// A sound checkpoint that does not belong to the run, or to its logs. No other one is tried: this one would be
/// removed.
struct NotOfThisRun : DataError {
  using DataError::DataError;
};

void stop_here_if(const std::function<bool()>& stop) {
  if (stop && stop()) throw StoppedBeforeTraining();
}

/// Refuses a pool that the host cannot hold. A run that may go on in smaller micro-batches gets a limit instead:
/// without one the system would end it before anything is refused.
void limit_to_host(const RunConfig& config, const RunPlan& plan, Runtime& runtime, RunObserver& observer) {
  const std::uint64_t limit = runtime.limit(config.device);
  const std::uint64_t bytes = limit > 0 ? std::min(limit, plan.pool_bytes) : plan.pool_bytes;
  try {
    require_free_host_bytes(config, plan, bytes);
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
  // A limit of the CPU is also that of what readers keep, which is charged to it when the data are opened.
  const std::uint64_t readers_bytes = plan_target(config, std::nullopt).readers_bytes;
  if (config.memory.on_oom == OnOutOfMemory::fail)
    runtime->require_pool(config.device, plan.pool_bytes + (runtime->limit(config.device) > 0 ? readers_bytes : 0));
  limit_to_host(config, plan, *runtime, observer);
  reserve_planned(*runtime, config, plan.pool_bytes);
  return runtime;
}

/// Copies the state that evaluations have moved so far, from a run's schedules to others made of its options.
void copy_state(const UpdateSchedules& from, const UpdateSchedules& to) {
  const auto all = from.evaluated(), copies = to.evaluated();
  for (std::size_t i = 0; i < all.size(); ++i) copies[i]->set_state(all[i]->state());
}

/// With the run's folder for what `cache: disk` writes; `stop` ends the reading, too.
DataOptions data_of(const RunConfig& config, const RunDirectory* directory, const std::function<bool()>& stop,
                    RunObserver& observer) {
  DataOptions data = *config.data;
  if (directory != nullptr) data.run_folder = directory->path().string();
  data.on_read = [&](std::string_view set, std::int64_t read, std::int64_t samples) {
    stop_here_if(stop);
    observer.on_read(set, read, samples);
  };
  return data;
}

SessionOptions linked(SessionOptions options, const RunRanks& ranks) {
  options.replicas.ranks = ranks.link;
  return options;
}

/// Says, before anything is read or packed, what the disk has no room for.
const RunPlan& checked_for_disk(const RunPlan& plan, const RunConfig& config, const RunPlace& place,
                                const Resume* resume, RunObserver& observer) {
  if (place.directory == nullptr) return plan;
  const std::int64_t kept = resume != nullptr ? std::ssize(resume->checkpoints) : 0;
  check_disk(disk_need(config, plan, kept), place.directory->path(), place.disk,
             [&observer](std::string_view text) { observer.on_warning(text); });
  return plan;
}

/// From its making to its end the observer knows that this rank only writes.
class Writing {
 public:
  Writing(RunObserver& observer, bool writes) : observer_(observer), writes_(writes) {
    if (writes_) observer_.on_writing(true);
  }
  ~Writing() {
    if (writes_) observer_.on_writing(false);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  RunObserver& observer_;
  bool writes_;
};

/// A file of the run's folder; on a rank without one, an empty path.
fs::path file_of(const RunPlace& place, fs::path (RunDirectory::*file)() const) {
  return place.directory != nullptr ? (place.directory->*file)() : fs::path();
}

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, int threads, const RunPlace& place, const Resume* resume,
                         const std::function<bool()>& stop, RunObserver& observer)
    : config_(config),
      place_(place),
      observer_(observer),
      plan_(plan_run(config)),
      runtime_(
          make_reserved_runtime(config, checked_for_disk(plan_, config, place, resume, observer), threads, observer)),
      algorithms_(*runtime_, config,
                  {.run_file = resume == nullptr ? "" : file_of(place, &RunDirectory::algorithms),
                   .planned_pool_bytes = plan_.pool_bytes,
                   .ranks = place.ranks,
                   .in_rounds = config.train.replicas > 1}),
      data_((stop_here_if(stop),
             open_data(*runtime_, data_of(config, place.directory, stop, observer), config.device, config.seed))),
      session_((stop_here_if(stop), *runtime_), config.device, config.model.graph,
               linked(session_options(config), place.ranks)),
      log_(file_of(place, &RunDirectory::metrics), config, runtime_->allocator(config.device),
           [this](std::string_view text) { observer_.on_warning(text); }),
      logs_({.histograms = file_of(place, &RunDirectory::histograms),
             .events = file_of(place, &RunDirectory::events),
             .validation_events = file_of(place, &RunDirectory::validation_events)},
            config, session_.model(), [this](std::string_view text) { observer_.on_warning(text); }),
      transport_(session_.step().transport()),
      resumes_(resume != nullptr) {
  stop_here_if(stop);
  session_.step().prepare({}, plan_.placements);
  prepare_device();
  stop_here_if(stop);
  make_initial_state(resume);
  share_state();
}

/// Makes the state of a checkpoint or of a new run; on ranks other than 0 nothing but its entries counts.
void TrainingRun::make_initial_state(const Resume* resume) {
  session_.model().register_state(state_);
  session_.optimizer().register_state(state_);
  position_ = initial_position();
  position_.register_state(state_);
  log_.register_state(state_);
  facts_.fingerprint = fingerprint_of(config_);
  add_data(facts_.fingerprint, data_);
  facts_.schedule_epochs = config_.train.epochs;
  facts_.schedule_updates = config_.train.updates;
  constexpr std::size_t kIdDigits = 32;
  facts_.run_id = sha256_of(to_text(facts_.fingerprint)).substr(0, kIdDigits);
  const bool begins = resume == nullptr || resume->checkpoints.empty();
  // Also of a session that goes on: its running statistics move as before.
  session_.model().buffers().set_settled(config_.model.weights || !config_.train.initial_weights.empty());
  if (begins && place_.ranks.writes()) load_own_weights();
  make_schedules();
  for (std::size_t i = 0; i < schedules_.evaluated().size(); ++i)
    state_.add_numbers(
        fmt::format("schedule/{}", i + 1), [this, i] { return schedules_.evaluated()[i]->state(); },
        [this, i](const std::vector<double>& saved) { schedules_.evaluated()[i]->set_state(saved); });
  if (resume != nullptr) load(*resume);
}

/// Rank 0's beginning in every rank, whose data and configuration are the same.
void TrainingRun::share_state() {
  const RunRanks& ranks = place_.ranks;
  if (!ranks.several()) return;
  require_same(ranks, "data or a configuration", to_text(facts_.fingerprint));
  if (config_.data) require_same(ranks, "data", data_lines(*config_.data));
  facts_.schedule_epochs = std::stoll(text_of_first(ranks, std::to_string(facts_.schedule_epochs)));
  facts_.schedule_updates = std::stoll(text_of_first(ranks, std::to_string(facts_.schedule_updates)));
  make_schedules();
  broadcast_state(ranks, state_, runtime_->stream(config_.device));
}

void TrainingRun::load_own_weights() {
  const InitialWeights weights = load_initial_weights(session_.model(), config_);
  whiten_seconds_ = weights.whiten_seconds;
  if (weights.text.empty()) return;
  if (weights.warns)
    observer_.on_warning(weights.text);
  else
    observer_.on_message(weights.text);
  if (const WeightAverage* average = session_.optimizer().average(); average != nullptr) average->begin();
}

/// The first checkpoint that is sound; those before it in the list are named. Without any, the run starts at update 0.
void TrainingRun::load(const Resume& resume) {
  for (const Checkpoint& checkpoint : resume.checkpoints) {
    try {
      load_checkpoint(checkpoint, resume.accepts_changes);
      loaded_ = checkpoint;
      return;
    } catch (const NotOfThisRun&) {
      throw;
    } catch (const DataError& error) {
      const bool last = &checkpoint == &resume.checkpoints.back();
      if (last) throw DataError(fmt::format("--resume: no checkpoint can be used: {}", error.what()));
      observer_.on_warning(fmt::format("{}; going on from the checkpoint before it", error.what()));
    }
  }
  observer_.on_warning(
      fmt::format("{} has no complete checkpoint yet: the run starts at update 0", directory().path().string()));
}

/// Whether the checkpoint is of this run, its files are of this checkpoint, and the logs are those that it continues.
/// `accepts_changes`: another run's checkpoint, and other logs, are reported and used all the same; no damaged file is.
void TrainingRun::check_origin(const Checkpoint& checkpoint, const CheckpointFacts& saved, bool accepts_changes) const {
  if (saved.run_id.empty())
    observer_.on_message(fmt::format("{} is of an earlier version, without SHA-256 of its files and of the logs",
                                     checkpoint.path.string()));
  checkpoint.check_file(checkpoint.weights(), saved.weights);
  const auto differs = [&](const std::string& text) {
    if (accepts_changes) return observer_.on_warning(text);
    throw NotOfThisRun(fmt::format(
        "--resume: {}\n  put the file back that belongs to {}, or name an earlier checkpoint (--resume "
        "RUN/checkpoints/update-N); --accept-changes goes on all the same, and keeps the file as it is under another "
        "name",
        text, checkpoint.path.string()));
  };
  const std::optional<RunRecord> record = read_record(directory().record());
  if (record && !record->id.empty() && !saved.run_id.empty() && record->id != saved.run_id)
    differs(fmt::format("{} is of another run: it names run {}, and run.json has {}", checkpoint.facts().string(),
                        shown(saved.run_id), shown(record->id)));
  const RunLogsPosition logs{
      .histograms = saved.histograms, .events = saved.events, .validation_events = saved.validation_events};
  for (const std::string& difference : {log_.file().difference_from(saved.metrics), logs_.difference_from(logs)})
    if (!difference.empty()) differs(difference);
  if (!what_else_is_at({.path = directory().config()}).empty()) return;
  const FileSum config = sum_of({.path = directory().config()}).finished();
  if (config.sha256 != saved.config_sha256 && !(record && record->config_sha256 == config.sha256))
    observer_.on_warning(
        fmt::format("{} was changed since {} was written", directory().config().string(), checkpoint.path.string()));
}

void TrainingRun::load_checkpoint(const Checkpoint& checkpoint, bool accepts_changes) {
  const CheckpointFacts saved = checkpoint.read();
  const std::string state = checkpoint.read_file(checkpoint.state(), saved.state);
  check_origin(checkpoint, saved, accepts_changes);
  const std::vector<std::string> changes = differences(saved.fingerprint, facts_.fingerprint);
  if (!changes.empty() && !accepts_changes)
    throw ConfigError(
        fmt::format("--resume: {} was trained with another configuration:\n  {}\n  a resumed run may change epochs, "
                    "checkpoint, logging, memory and device; --accept-changes goes on all the same",
                    checkpoint.path.string(), fmt::join(changes, "\n  ")));
  const bool other_metrics =
      std::ranges::any_of(changes, [](const std::string& change) { return change.starts_with("train.metrics"); });
  if (other_metrics && saved.update > 0)
    throw ConfigError(fmt::format(
        "--resume: the run stopped inside an epoch whose metrics were others; it cannot go on with these ({})",
        fmt::join(changes, "; ")));
  for (const std::string& change : changes) observer_.on_warning("changed since the checkpoint: " + change);
  const Position before = position_;
  log_.ignore_sums(other_metrics);
  load_state(state_, runtime_->stream(config_.device), parse_safetensors(state, checkpoint.state()));
  position_ = resumed_position(position_, before, config_, checkpoint.state());
  if (other_metrics) position_.sum = numbers_of({});
  // Numbers of updates to come are those of epochs that had more updates: nothing was evaluated there.
  if (position_.evaluated > first_update()) position_.evaluated = 0;
  if (position_.tested > first_update()) position_.tested = 0;
  facts_.updates = saved.updates;
  facts_.best_metric = saved.best_metric;
  facts_.best_weights = saved.best_weights;
  facts_.seconds = saved.seconds;
  facts_.schedule_epochs = saved.schedule_epochs;
  facts_.schedule_updates = saved.schedule_updates;
  facts_.best_sha256 = saved.best_sha256;
  facts_.weights = saved.weights;
  facts_.metrics = saved.metrics;
  facts_.histograms = saved.histograms;
  facts_.events = saved.events;
  facts_.validation_events = saved.validation_events;
  if (!saved.run_id.empty()) facts_.run_id = saved.run_id;
  make_schedules();
  if (updates_of_schedules() != updates_of_run() && schedules_follow_epochs()) warn_of_other_length();
}

void TrainingRun::warn_of_other_length() const {
  const bool in_updates = config_.train.updates > 0 || facts_.schedule_updates > 0;
  observer_.on_warning(
      fmt::format("the run has {} {} now; a schedule without 'over' keeps the {} that it was made with",
                  in_updates ? updates_of_run() : config_.train.epochs, in_updates ? "updates" : "epochs",
                  in_updates ? updates_of_schedules() : facts_.schedule_epochs));
}

/// In this order: a checkpoint that is there has its lines. Changes that were accepted may make epochs of fewer or more
/// updates: the checkpoint then gets the number that its epochs come to now, so that those to come are newer.
void TrainingRun::discard_after_checkpoint() {
  const CheckpointFolder checkpoints = directory().checkpoints();
  checkpoints.remove_after(loaded_ ? loaded_->updates : first_update());
  if (loaded_ && (loaded_->updates != first_update() || facts_.updates != first_update()))
    loaded_ = checkpoints.renumber(*loaded_, first_update());
  cut_logs();
}

void TrainingRun::cut_logs() {
  log_.cut(facts_.metrics);
  logs_.cut({.histograms = facts_.histograms, .events = facts_.events, .validation_events = facts_.validation_events});
}

bool TrainingRun::has_its_weights() const {
  const bool best = config_.train.restore_best && position_.best_epoch > 0;
  const std::string& sha256 = best ? facts_.best_sha256 : facts_.weights.sha256;
  const FileSum there = sum_of({.path = directory().weights()}).finished();
  return there.bytes > 0 && (sha256.empty() || there.sha256 == sha256);
}

void TrainingRun::complete() {
  if (!loaded_) return;
  const auto snapshot = [this] {
    auto copied = std::make_unique<StateSnapshot>(state_, *runtime_, config_.device);
    copied->set_metadata({{kRunIdKey, facts_.run_id}}, weights_metadata(config_));
    copied->copy();
    copied->wait();
    return copied;
  };
  if (config_.train.optimizer.ema) {
    AtomicFile file(FolderFile{directory().average_weights()});
    snapshot()->write_average(file);
    file.commit();
  }
  write_file_atomically(FolderFile{directory().weights()}, loaded_->read_file(loaded_->weights(), facts_.weights));
  keep_best_weights(
      {.config = config_, .directory = directory(), .facts = facts_, .position = position_},
      [&](const BestEvaluation& best) {
        (void)write_best_weights(directory().best_weights(), *snapshot(), config_, best);
      },
      [this](std::string_view text) { observer_.on_warning(text); });
  restore_best();
  cut_logs();
  log_.notify([this](const nlohmann::ordered_json& line) { logs_.add(line); });
  logs_.begin(updates_per_epoch());
  log_.end_at(position_.epoch, position_.update);
  logs_.end(true);
}

Position TrainingRun::initial_position() const {
  return {.effective_batch = effective_batch(),
          .batches = data_.train->batches_per_epoch(),
          .seed = static_cast<std::int64_t>(config_.seed),
          .sum = numbers_of({})};
}

std::int64_t TrainingRun::updates_per_epoch() const {
  return updates_of(data_.train->batches_per_epoch(), config_.train.accumulate, config_.train.replicas);
}

std::int64_t TrainingRun::updates_of_run() const {
  return config_.train.updates > 0 ? config_.train.updates : updates_per_epoch() * config_.train.epochs;
}

/// That its schedules are made for.
std::int64_t TrainingRun::updates_of_schedules() const {
  return facts_.schedule_updates > 0 ? facts_.schedule_updates : updates_per_epoch() * facts_.schedule_epochs;
}

/// Whether train.updates are done; the last epoch may have a part of its updates.
bool TrainingRun::has_all_updates() const {
  return config_.train.updates > 0 && first_update() >= config_.train.updates;
}

/// All updates of an epoch are not its end, nor are all of the run: an evaluation may come then, and the test set.
bool TrainingRun::is_finished() const {
  const std::int64_t most = config_.train.max_updates;
  const Duration every = config_.train.evaluate_every;
  const bool ends_epoch = position_.update == updates_per_epoch();
  const bool due = has_all_updates() || (every.unit == Duration::Unit::updates && first_update() % every.count == 0);
  const bool between = config_.train.evaluate && due && position_.evaluated != first_update();
  const bool evaluates = position_.update > 0 && (ends_epoch || between);
  const bool all = has_all_updates() || (most > 0 && first_update() >= most);
  const bool trained = position_.epoch >= config_.train.epochs || stopped_early() || (all && !evaluates);
  const bool tests = data_.test != nullptr && config_.train.evaluate && position_.tested != first_update();
  return trained && !tests;
}

bool TrainingRun::stopped_early() const {
  const std::optional<EarlyStopOptions>& stop = config_.train.stop_early;
  return stop && position_.epoch < config_.train.epochs && position_.update == 0 &&
         stops_early(*stop, position_.stop_early);
}

std::string TrainingRun::reason() const {
  if (position_.epoch >= config_.train.epochs || has_all_updates()) return {};
  return stopped_early() ? early_stop_reason(*config_.train.stop_early, position_.stop_early) : "train.max_updates";
}

/// After the last weights were written: where the run is killed in between, `complete` does it.
void TrainingRun::restore_best() const {
  std::error_code error;
  if (!config_.train.restore_best || position_.best_epoch == 0) return;
  if (!std::filesystem::exists(directory().best_weights(), error)) return;
  write_file_atomically(FolderFile{directory().weights()}, read_file(FolderFile{directory().best_weights()}));
}

/// Under a limit on a GPU the run's kernels are loaded and counted before the first batch, not in mid-epoch. With
/// replicas algorithms are chosen here, by one rank for all: which rank would meet a problem first depends on how many
/// there are.
void TrainingRun::prepare_device() {
  if (!config_.device.is_cuda()) return;
  const bool limited = runtime_->limit(config_.device) != 0;
  if (config_.train.replicas > 1)
    algorithms_.choose_in_rounds(to_string(config_.recompute), [this] { warm_up_all(); });
  else if (limited)
    warm_up_all();
  if (place_.ranks.writes() && !algorithms_.unlike_cards().empty())
    observer_.on_warning(fmt::format("ranks have unlike GPUs ({}): on other GPUs this run may have other bits",
                                     fmt::join(algorithms_.unlike_cards(), ", ")));
  if (!limited) return;
  algorithms_.end_timing();
  runtime_->settle_limit(config_.device);
}

void TrainingRun::warm_up_all() {
  const BatchSource& train = *data_.train;
  const std::int64_t full = train.batch_size(), last = train.size_of(train.batches_per_epoch() - 1);
  warm_up(full);
  if (last != full) warm_up(last);
  if (config_.train.replicas == 1 || !config_.train.evaluate) return;
  std::set<std::int64_t> sizes;
  for (const BatchSource* source : {data_.validation.get(), data_.test.get()})
    if (source != nullptr && source->batches_per_epoch() > 0)
      sizes.insert({source->size_of(0), source->size_of(source->batches_per_epoch() - 1)});
  sizes.erase(full);
  sizes.erase(last);
  for (const std::int64_t size : sizes) warm_up_evaluation(size);
}

/// On random values, which count nowhere.
void TrainingRun::warm_up_evaluation(std::int64_t batch) {
  TrainingStep& step = session_.step();
  try {
    const Batch random =
        random_batch(step.model(), batch, philox_key(config_.seed, RandomPurpose::dataset), config_.train.loss);
    if (config_.train.loss.views)
      warm_up_views(step, random);
    else
      step.evaluate(random);
  } catch (const OutOfMemory&) {
    if (config_.memory.on_oom == OnOutOfMemory::fail) throw;
  }
  (void)step.take_evaluation_sums();
}

/// A warm-up that does not fit does not end a run that may go on in smaller micro-batches.
void TrainingRun::warm_up(std::int64_t batch) {
  const bool accumulates = config_.train.accumulate > 1;
  if (config_.memory.on_oom == OnOutOfMemory::fail)
    session_.step().warm_up(batch, accumulates);
  else
    (void)warm_up_what_fits(session_.step(), batch, accumulates);
}

/// Makes the schedules of the run as it was configured at its beginning, wherever and for however long it was resumed.
/// Where that is only known now, what evaluations have moved so far stays.
void TrainingRun::make_schedules() {
  UpdateSchedules made = schedules_of(config_.train.optimizer,
                                      {.updates = updates_of_schedules(), .updates_per_epoch = updates_per_epoch()});
  copy_state(schedules_, made);
  schedules_ = std::move(made);
}

/// Whether a run of this length from its beginning would have other values than this one at its updates to come.
bool TrainingRun::schedules_follow_epochs() const {
  constexpr std::int64_t kCompared = 10'000;  // updates, evenly over the run
  const std::int64_t each = updates_per_epoch(), updates = updates_of_run();
  UpdateSchedules other;
  try {
    other = schedules_of(config_.train.optimizer, {.updates = updates, .updates_per_epoch = each});
  } catch (const ConfigError&) {
    return true;  // its times need another length
  }
  copy_state(schedules_, other);
  const auto differ = [&](const Schedule& a, const Schedule& b) {
    for (std::int64_t n = first_update(); a && b && n < updates; n += std::max<std::int64_t>(1, updates / kCompared))
      if (a(n) != b(n)) return true;
    return false;
  };
  return differ(schedules_.learning_rate, other.learning_rate) || differ(schedules_.weight_decay, other.weight_decay) ||
         differ(schedules_.momentum, other.momentum);
}

/// On CPUs before each update; hosts of GPUs are some launches ahead, and ask less often.
std::function<bool(bool)> TrainingRun::agreement() const {
  constexpr double kSecondsBetween = 0.01;
  if (!place_.ranks.several()) return {};
  return StopAgreement(place_.ranks, config_.device.is_cuda() ? kSecondsBetween : 0);
}

TrainerOptions TrainingRun::trainer_options(std::function<bool()> stop) {
  return {.epochs = config_.train.epochs,
          .updates = config_.train.updates,
          .accumulate = config_.train.accumulate,
          // On CPUs reading costs nothing, and all ranks find the first update that is not finite at once.
          .read_every = place_.ranks.several() && !config_.device.is_cuda() ? 1 : TrainingStep::kMetricRing,
          .evaluate = config_.train.evaluate,
          .evaluate_every = config_.train.evaluate_every,
          .test = data_.test.get(),
          .mode = config_.train.mode,
          .schedules = schedules_,
          .on_oom = config_.memory.on_oom,
          .first = {.epoch = position_.epoch,
                    .update = position_.update,
                    .sum = metrics_from(position_.sum, config_.train.loss.metrics, "trainer/sum"),
                    .evaluated = position_.evaluated,
                    .stop_early = position_.stop_early},
          .stop_early = config_.train.stop_early,
          .max_updates = config_.train.max_updates,
          .look_every = place_.directory != nullptr ? config_.log.histograms : place_.histogram_every,
          .look =
              [this](std::int64_t update) {
                if (place_.directory != nullptr) logs_.sample(update);
              },
          .stop = std::move(stop),
          .agree = agreement()};
}

void TrainingRun::add_own(Trainer& trainer, std::unique_ptr<Callback> callback) {
  trainer.add(*own_.emplace_back(std::move(callback)));
}

/// Adds the configuration's callbacks, and the comparison of the ranks last, since it may throw: the callbacks before
/// it then have all of the epoch, and their records are complete.
void TrainingRun::add_last(Trainer& trainer) {
  for (const CallbackMaker& make : config_.train.callbacks) add_own(trainer, make());
  constexpr double kSecondsBetween = 10;  // a GPU's epochs may be shorter than reading its state
  if (place_.ranks.several())
    add_own(trainer, std::make_unique<StateComparison>(place_.ranks, state_, runtime_->stream(config_.device),
                                                       config_.device.is_cuda() ? kSecondsBetween : 0));
}

TrainResult TrainingRun::run_as_worker(std::function<bool()> stop) {
  Trainer trainer(session_.step(), *data_.train, data_.validation.get(), trainer_options(std::move(stop)));
  trainer.add(log_);
  add_last(trainer);
  return trainer.run();
}

TrainResult TrainingRun::train(RunRecord record, std::function<bool()> stop, std::span<Callback* const> callbacks,
                               const std::function<void()>& trained) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  bool out_of_time = false;
  const auto stops = [&] {
    const std::int64_t most = config_.train.max_seconds;
    out_of_time = out_of_time || (most > 0 && Clock::now() - start >= std::chrono::seconds(most));
    return out_of_time || (stop && stop());
  };
  TrainerOptions options = trainer_options(stops);
  const SavedRun saved{config_, directory(), position_, log_, logs_, algorithms_, facts_, observer_};
  RunSaver saver(saved, std::move(record), std::make_unique<StateSnapshot>(state_, *runtime_, config_.device),
                 updates_per_epoch());
  options.checkpointer = &saver;
  Trainer trainer(session_.step(), *data_.train, data_.validation.get(), std::move(options));
  log_.begin(facts_.seconds);
  log_.notify([this](const nlohmann::ordered_json& line) { logs_.add(line); });
  logs_.begin(updates_per_epoch());
  trainer.add(logs_);
  trainer.add(log_);
  trainer.add(saver);
  for (Callback* callback : callbacks) trainer.add(*callback);
  add_last(trainer);
  saver.note(RunState::running, "");
  TrainResult result;
  try {
    result = trainer.run();
    if (trained) trained();
  } catch (const std::exception& error) {
    observer_.on_trained();
    const EndOfFailed end = end_of_failed(trainer);
    if (place_.ranks.several()) place_.ranks.link->fail(error.what());  // before the files: the others wait for nothing
    // Where the device did not come to the end of an update, writing could wait for it for ever.
    const Writing writing(observer_, place_.ranks.several() && end.position);
    rescue(trainer, saver, error, end);
    throw;
  }
  observer_.on_trained();
  const Writing writing(observer_, place_.ranks.several());
  save(trainer, saver, result);
  end(result, saver, out_of_time);
  observer_.on_saved();
  for (const AppendedFile* file : {&log_.file(), &logs_.histograms(), &logs_.events(), &logs_.validation_events()})
    if (!file->complete())
      throw DataError(fmt::format("{} lacks lines; all else of the run is saved", file->path().string()));
  return result;
}

/// Saves the run at its end: algorithms, the last checkpoint, the weights.
void TrainingRun::save(Trainer& trainer, RunSaver& saver, const TrainResult& result) {
  saver.add_compute_seconds(whiten_seconds_ + result.seconds + result.evaluation_seconds);
  algorithms_.save();
  try {
    saver.finish(trainer.position());
    if (!result.stopped) restore_best();
  } catch (const DataError& error) {
    saver.note(RunState::failed, error.what());
    throw;
  }
  logs_.end(true);
}

/// The last word of run.json.
void TrainingRun::end(const TrainResult& result, RunSaver& saver, bool out_of_time) {
  if (data_.broken != nullptr) saver.set_broken(*data_.broken);
  if (out_of_time && result.stopped)
    saver.note(RunState::stopped, std::string(kOutOfTime));
  else if (result.stopped)
    saver.note(RunState::stopped, "on request");
  else
    saver.note(RunState::finished, reason());
  if (saver.failures() > 0)
    observer_.on_warning(fmt::format("{} of the checkpoints on the way could not be written; the last one is complete",
                                     saver.failures()));
}

/// While the other ranks still take part in what GPUs were given to do; nowhere, where they did not until its end.
TrainingRun::EndOfFailed TrainingRun::end_of_failed(Trainer& trainer) noexcept {
  try {
    if (trainer.so_far().updates > 0) return {.position = trainer.position(), .reason = {}};
    return {};
  } catch (const std::exception& error) {
    return {.position = std::nullopt, .reason = error.what()};
  }
}

/// Saves what a run that failed has done before, if anything, and says so. After gradients that were not finite
/// an earlier checkpoint is the better one.
void TrainingRun::rescue(Trainer& trainer, RunSaver& saver, const std::exception& error,
                         const EndOfFailed& end) noexcept {
  try {
    saver.end_writing();
    const bool diverged = dynamic_cast<const NotFiniteError*>(&error) != nullptr;
    const bool differs = dynamic_cast<const StateMismatch*>(&error) != nullptr;
    const bool wanted =
        trainer.so_far().updates > 0 && !differs && !(diverged && !directory().checkpoints().list().empty());
    if (wanted && end.position) {
      logs_.on_end();
      log_.on_end();
      saver.finish(*end.position);
      logs_.end(false);
      observer_.on_saved();
      observer_.on_warning(fmt::format("the run failed in epoch {} after {} of its updates, which are saved in {}",
                                       end.position->epoch + 1, end.position->update, directory().path().string()));
    } else if (wanted) {
      observer_.on_warning(
          fmt::format("the run failed, and what it has trained since the newest checkpoint is lost: {}", end.reason));
    }
    if (trainer.so_far().updates == 0 && first_update() == 0 && !resumes_)
      return directory().abandon();  // it has not begun
    saver.note(RunState::failed, error.what());
  } catch (const std::exception& failure) {
    observer_.on_warning(
        fmt::format("the run failed, and what it has trained could not be saved: {}", plain_words(failure)));
  }
}

}  // namespace bantam::run
