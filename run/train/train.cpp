// From a configuration to a run that is saved.
#include "bantam/run/train/train.h"

#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/file_lock.h"
#include "bantam/base/plain_words.h"
#include "bantam/memory/device/links.h"
#include "bantam/run/ranks/rank_config.h"
#include "bantam/run/ranks/rank_devices.h"
#include "bantam/run/train/best_weights.h"
#include "bantam/run/train/training_run.h"

namespace bantam::run {
namespace {

/// A rank's GPU becomes this thread's current one: calls that name none, for page-locked memory say, would make a
/// context on the first GPU too. What others have in use there is noted before.
class OwnDevice {
 public:
  explicit OwnDevice(Device device) {
    if (!device.is_cuda()) return;
    meter_.emplace(device);
    scope_.emplace(device);
  }

 private:
  std::optional<ProcessMeter> meter_;
  std::optional<DeviceScope> scope_;
};

/// Every rank has its device, which is there, and no other rank has it too.
void require_devices(const RunConfig& config, const RunRanks& ranks) {
  require_device(config);
  if (ranks.several() && config.device.is_cuda()) require_own_gpus(ranks, gpu_identity(config.device.index));
}

RunConfig settled_alone(const RunConfig& config, Settled& settled) {
  require_ranks(config, 1);
  settled = settle(config);
  return with_settled(config, settled);
}

/// Of rank 0, whose device is its own.
RunConfig settled_together(const RunConfig& config, const TrainRunOptions& options, Settled& settled) {
  const RunConfig sent = send_config(config, options.ranks, settled);
  require_devices(config, options.ranks);
  return settle_own(sent, options.ranks, options.threads, settled);
}

RunConfig settled_config(const RunConfig& config, const TrainRunOptions& options, RunObserver& observer) {
  require_device(config);
  if (!config.data) config.document.root().fail_at_key("missing key 'data': training needs data");
  Settled settled;
  // A resumed run has the keys, or is from before them: they are not added, since they would be changes.
  const RunConfig begun = options.resume == nullptr ? with_data_keys(config) : config;
  RunConfig closed =
      options.ranks.several() ? settled_together(begun, options, settled) : settled_alone(begun, settled);
  observer.on_settled(closed, settled);
  return closed;
}

RunConfig on_own_device(const RunConfig& config, const RunRanks& ranks) {
  RunConfig own = config;
  own.device = device_of_rank(config.device, ranks, cuda_device_count());
  return own;
}

/// What `work` returns; where it throws, all ranks hear why.
TrainOutcome told_to_all(const RunRanks& ranks, const std::function<TrainOutcome()>& work) {
  if (!ranks.several()) return work();
  try {
    return work();
  } catch (const CommunicationError&) {  // which all have heard of
    throw;
  } catch (const std::exception& error) {
    ranks.link->fail(plain_words(error));
    throw;
  }
}

int signal_of(const TrainRunOptions& options) {
  return first_number(options.ranks, options.signal ? options.signal() : 0);
}

TrainOutcome outcome_of(const RunConfig& config, const RunDirectory& directory, const TrainingRun& run,
                        TrainResult result) {
  const Device device = config.device;
  Runtime& runtime = run.runtime();
  TrainOutcome outcome{.config = config,
                       .folder = directory.path(),
                       .result = result,
                       .reason = result.stopped ? "" : run.reason(),
                       .best = run.position().best,
                       .best_epoch = run.position().best_epoch,
                       .effective_batch = run.effective_batch(),
                       .parameters = run.parameter_count(),
                       .memory = runtime.allocator(device).stats(),
                       .planned_peak_bytes = run.plan().peak_bytes,
                       .planned_pool_bytes = run.plan().pool_bytes,
                       .process = runtime.process_memory(device),
                       .overhead = runtime.memory_overhead(device),
                       .transport = run.transport()};
  if (run.broken() != nullptr) {
    outcome.broken_samples = run.broken()->count();
    for (const BrokenSamples::Sample& sample : run.broken()->first()) outcome.broken_reasons.push_back(sample.reason);
  }
  if (config.train.optimizer.prune) outcome.weights = compressed_size_of(directory.weights());
  if (!device.is_cuda()) return outcome;
  outcome.host = runtime.allocator(Device::cpu()).stats();
  outcome.pinned = runtime.pinned_allocator().stats();
  return outcome;
}

/// A run that goes on: from the checkpoint that was asked for, else from the newest that is sound.
Resume resume_of(const RunDirectory& directory, bool accepts_changes) {
  return {.checkpoints = directory.chosen() ? std::vector{*directory.chosen()} : directory.checkpoints().list(),
          .accepts_changes = accepts_changes};
}

RunRecord record_for(const RunConfig& config, const RunDirectory& directory, const TrainRunOptions& options) {
  const RunRecord now = record_of(config, options.command);
  const std::optional<RunRecord> before = options.resume != nullptr ? read_record(directory.record()) : std::nullopt;
  if (!before) return now;
  RunRecord record = *before;
  record.state = RunState::starting;
  record.reason.clear();
  record.device = now.device;
  record.ranks = now.ranks;
  record.precision = now.precision;
  record.command = now.command;
  record.config_sha256 = now.config_sha256;
  record.git_commit = now.git_commit;
  record.versions = now.versions;
  record.started = record.updated = now.started;
  record.epochs = now.epochs;
  record.watched = now.watched;
  record.larger_is_better = now.larger_is_better;
  ++record.sessions;
  return record;
}

void begin(const RunDirectory& directory, const RunConfig& config, const RunRecord& record) {
  write_file_atomically(FolderFile{directory.config()}, config.document.resolved_yaml());
  write_record(directory.record(), record);
}

/// run.json alone, where nothing depends on it.
void try_to_write(const RunDirectory& directory, RunRecord record, RunState state, const std::string& reason) noexcept {
  record.state = state;
  record.reason = reason;
  try {
    write_record(directory.record(), record);
  } catch (const std::exception&) {  // the folder can be used all the same
  }
}

/// Makes the run, up to its first batch. A new run that fails there leaves nothing, so that a retry finds the folder
/// free; one that was asked to stop, or is killed, can be resumed. One that goes on and is asked to stop there changes
/// nothing: its run.json says whether the folder's weights are those of its end.
std::unique_ptr<TrainingRun> start(const RunConfig& config, const RunDirectory& directory, const RunRecord& record,
                                   const TrainRunOptions& options, RunObserver& observer) {
  const bool resumes = options.resume != nullptr;
  const bool replaces = !resumes && options.overwrite && directory.has_files();
  try {
    if (!resumes && !replaces) begin(directory, config, record);
    const Resume resume = resumes ? resume_of(directory, options.accept_changes) : Resume();
    auto run = std::make_unique<TrainingRun>(
        config, options.threads, RunPlace{.directory = &directory, .ranks = options.ranks, .disk = options.disk},
        resumes ? &resume : nullptr, options.stop_start, observer);
    if (run->is_finished()) return run;
    if (replaces) directory.clear();
    if (resumes) write_record(directory.record(), record);  // first: weights of the run's end are none of it any more
    if (resumes) run->forget_rest();
    if (resumes || replaces) begin(directory, config, record);
    return run;
  } catch (const StoppedBeforeTraining& stopped) {
    if (!replaces && !resumes) try_to_write(directory, record, RunState::stopped, stopped.what());
    throw;
  } catch (...) {
    if (!resumes && !replaces) directory.abandon();
    throw;
  }
}

/// Of a run that has all of its epochs; killed after its last checkpoint, it may lack what comes then. Where one of its
/// checkpoints was named, nothing is written: the folder's weights may be of another.
void complete(const RunConfig& config, const RunDirectory& directory, const RunRecord& record, TrainingRun& run) {
  if (directory.chosen()) return;
  const std::optional<RunRecord> before = read_record(directory.record());
  const bool ended = before && before->state == RunState::finished;
  if (ended && run.has_its_weights()) return;
  run.complete();
  if (ended) return;
  RunRecord last = before.value_or(record);
  const BestEvaluation best = best_of(run.position(), config);
  last.metric = best.metric;
  last.best = best.value;
  last.best_epoch = best.epoch;
  try_to_write(directory, std::move(last), RunState::finished, run.reason());
}

TrainOutcome train_with_folder(const RunConfig& config, const TrainRunOptions& options,
                               std::span<Callback* const> callbacks) {
  RunObserver silent;
  RunObserver& observer = options.observer != nullptr ? *options.observer : silent;
  if (options.resume == nullptr) RunDirectory::require_free(options.run_dir, options.overwrite);
  const RunConfig own = on_own_device(config, options.ranks);
  require_device(own);
  const OwnDevice device(own.device);
  const RunConfig closed = settled_config(own, options, observer);
  std::optional<RunDirectory> made;
  if (options.resume == nullptr) made.emplace(RunDirectory::create(options.run_dir, closed.name, options.overwrite));
  const RunDirectory& directory = made ? *made : *options.resume;
  if (!directory.is_guarded() && is_first_without_locks())
    observer.on_warning(fmt::format(
        "the file system of {} has no locks (flock): nothing keeps a second process out of a run's folder; let one "
        "process at a time use it",
        directory.path().string()));
  const RunRecord record = record_for(closed, directory, options);
  const std::unique_ptr<TrainingRun> run = start(closed, directory, record, options, observer);
  if (run->is_finished()) {
    complete(closed, directory, record, *run);
    TrainOutcome outcome =
        outcome_of(closed, directory, *run, {.stopped_early = run->stopped_early(), .epoch = run->position().epoch});
    outcome.finished_before = true;
    return outcome;
  }
  observer.on_ready();
  observer.on_begin({.config = closed, .directory = directory, .plan = run->plan(), .runtime = run->runtime()});
  int signal = 0;
  const TrainResult result = run->train(record, options.stop, callbacks, [&] { signal = signal_of(options); });
  TrainOutcome outcome = outcome_of(closed, directory, *run, result);
  outcome.signal = signal;
  return outcome;
}

TrainOutcome train_without_folder(const TrainRunOptions& options) {
  RunObserver silent;
  RunObserver& observer = options.observer != nullptr ? *options.observer : silent;
  Settled settled;
  const RunConfig received = receive_config(options.ranks);
  require_devices(received, options.ranks);
  const OwnDevice device(received.device);
  RunConfig config = settle_own(received, options.ranks, options.threads, settled);
  const std::int64_t look_every = std::exchange(config.log, {}).histograms;  // which rank 0 alone writes
  TrainingRun run(config, options.threads, {.ranks = options.ranks, .look_every = look_every}, nullptr,
                  options.stop_start, observer);
  TrainOutcome outcome{.config = config, .finished_before = run.is_finished()};
  if (outcome.finished_before) return outcome;
  observer.on_ready();
  outcome.result = run.follow(options.stop);
  observer.on_trained();
  outcome.signal = signal_of(options);
  observer.on_saved();
  return outcome;
}

}  // namespace

TrainOutcome train(const RunConfig& config, const TrainRunOptions& options, std::span<Callback* const> callbacks) {
  return told_to_all(options.ranks, [&] { return train_with_folder(config, options, callbacks); });
}

TrainOutcome train_beside(const TrainRunOptions& options) {
  return told_to_all(options.ranks, [&] { return train_without_folder(options); });
}

}  // namespace bantam::run
