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
#include "bantam/run/fit/warnings.h"
#include "bantam/run/ranks/rank_config.h"
#include "bantam/run/ranks/rank_devices.h"
#include "bantam/run/train/best_weights.h"
#include "bantam/run/train/compressed_size.h"
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

/// The observer of a program that has none: passes warnings on.
class Warnings : public RunObserver {
 public:
  explicit Warnings(const std::function<void(std::string_view)>& receive) : receive_(receive) {}
  void on_decided(const RunConfig&, const DecisionLog& log) override {
    for (const std::string& warning : log.warnings) on_warning(warning);
  }
  void on_warning(std::string_view text) override {
    if (receive_) receive_(text);
  }

 private:
  const std::function<void(std::string_view)>& receive_;
};

/// The arguments of one call of train or train_worker.
struct Call {
  const TrainOptions& options;
  const RunHooks& hooks;
  std::span<Callback* const> callbacks = {};
  Warnings warnings = Warnings(options.on_warning);

  RunObserver& observer() { return hooks.observer != nullptr ? *hooks.observer : warnings; }
  const RunRanks& ranks() const { return hooks.ranks; }
  bool resumes() const { return hooks.resume != nullptr; }
  int signal() const { return first_number(hooks.ranks, hooks.signal ? hooks.signal() : 0); }
};

/// Throws where the device is not in this machine, or another rank uses it too.
void require_own_device(const RunConfig& config, const RunRanks& ranks) {
  require_device(config);
  if (ranks.several() && config.device.is_cuda()) require_own_gpus(ranks, gpu_identity(config.device.index));
}

/// The configuration as it is trained: on rank 0, with nothing `auto`. A resumed run has the keys that only a new run
/// decides, or is from before them: they are not added, since they would be changes.
RunConfig decided_config(const RunConfig& config, Call& call) {
  if (!config.data) config.document.root().fail_at_key("missing key 'data': training needs data");
  DecisionLog log;
  const RunConfig shared = share_config(config, call.ranks(), !call.resumes(), log);
  require_own_device(shared, call.ranks());
  RunConfig own = decide_own(shared, call.ranks(), call.options.threads, log);
  for (std::string& warning : run_warnings(own)) log.warnings.push_back(std::move(warning));
  call.observer().on_decided(own, log);
  return own;
}

/// The result of `work`; where it throws, all ranks receive the reason.
Outcome share_failure(const RunRanks& ranks, const std::function<Outcome()>& work) {
  if (!ranks.several()) return work();
  try {
    return work();
  } catch (const CommunicationError&) {  // which all have received
    throw;
  } catch (const std::exception& error) {
    ranks.link->fail(plain_words(error));
    throw;
  }
}

Outcome outcome_of(const RunConfig& config, const RunDirectory& directory, const TrainingRun& run, TrainResult result) {
  const Device device = config.device;
  Runtime& runtime = run.runtime();
  Outcome outcome{.config = Config(std::make_shared<const RunConfig>(config)),
                  .folder = directory.path(),
                  .result = result,
                  .reason = result.stopped ? "" : run.reason(),
                  .best = run.position().best,
                  .best_epoch = run.position().best_epoch,
                  .effective_batch = run.effective_batch(),
                  .parameters = run.parameter_count(),
                  .planned_peak_bytes = run.plan().peak_bytes,
                  .planned_pool_bytes = run.plan().pool_bytes,
                  .memory = runtime.allocator(device).stats(),
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

RunRecord record_for(const RunConfig& config, const RunDirectory& directory, const Call& call) {
  const RunRecord now = record_of(config, call.hooks.command);
  const std::optional<RunRecord> before = call.resumes() ? read_record(directory.record()) : std::nullopt;
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
                                   Call& call) {
  const bool resumes = call.resumes();
  const bool replaces = !resumes && call.options.overwrite && directory.has_files();
  try {
    if (!resumes && !replaces) begin(directory, config, record);
    const Resume resume = resumes ? resume_of(directory, call.options.accept_changes) : Resume();
    auto run = std::make_unique<TrainingRun>(
        config, call.options.threads, RunPlace{.directory = &directory, .ranks = call.ranks(), .disk = call.hooks.disk},
        resumes ? &resume : nullptr, call.hooks.stop_start, call.observer());
    if (run->is_finished()) return run;
    if (replaces) directory.clear();
    if (resumes) write_record(directory.record(), record);  // first: weights of the run's end are none of it any more
    if (resumes) run->discard_after_checkpoint();
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

/// Writes what a run that has all of its epochs lacks where it was killed after its last checkpoint. Where one of its
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

Outcome train_with_folder(const RunConfig& config, Call& call) {
  const TrainOptions& options = call.options;
  RunObserver& observer = call.observer();
  if (!call.resumes()) RunDirectory::require_free(options.folder, options.overwrite);
  RunConfig on_device = config;
  on_device.device = device_of_rank(config.device, call.ranks(), cuda_device_count());
  require_device(on_device);
  const OwnDevice device(on_device.device);
  const RunConfig own = decided_config(on_device, call);
  std::optional<RunDirectory> made;
  if (!call.resumes()) made.emplace(RunDirectory::create(options.folder, own.name, options.overwrite));
  const RunDirectory& directory = made ? *made : *call.hooks.resume;
  if (!directory.is_guarded() && is_first_without_locks())
    observer.on_warning(fmt::format(
        "the file system of {} has no locks (flock): nothing keeps a second process out of a run's folder; let one "
        "process at a time use it",
        directory.path().string()));
  const RunRecord record = record_for(own, directory, call);
  const std::unique_ptr<TrainingRun> run = start(own, directory, record, call);
  if (run->is_finished()) {
    complete(own, directory, record, *run);
    Outcome outcome =
        outcome_of(own, directory, *run, {.stopped_early = run->stopped_early(), .epoch = run->position().epoch});
    outcome.finished_before = true;
    return outcome;
  }
  observer.on_ready();
  observer.on_begin({.config = own, .directory = directory, .plan = run->plan(), .runtime = run->runtime()});
  int signal = 0;
  const TrainResult result = run->train(record, options.stop, call.callbacks, [&] { signal = call.signal(); });
  Outcome outcome = outcome_of(own, directory, *run, result);
  outcome.signal = signal;
  return outcome;
}

Outcome train_without_folder(Call& call) {
  const RunConfig received = receive_config(call.ranks());
  require_own_device(received, call.ranks());
  const OwnDevice device(received.device);
  DecisionLog log;  // which rank 0 reports
  RunConfig config = decide_own(received, call.ranks(), call.options.threads, log);
  const std::int64_t histogram_every = std::exchange(config.log, {}).histograms;  // which rank 0 alone writes
  TrainingRun run(config, call.options.threads, {.ranks = call.ranks(), .histogram_every = histogram_every}, nullptr,
                  call.hooks.stop_start, call.observer());
  Outcome outcome{.config = Config(std::make_shared<const RunConfig>(config)), .finished_before = run.is_finished()};
  if (outcome.finished_before) return outcome;
  call.observer().on_ready();
  outcome.result = run.run_as_worker(call.options.stop);
  call.observer().on_trained();
  outcome.signal = call.signal();
  call.observer().on_saved();
  return outcome;
}

}  // namespace

Outcome train(const RunConfig& config, const TrainOptions& options, std::span<Callback* const> callbacks,
              const RunHooks& hooks) {
  Call call{.options = options, .hooks = hooks, .callbacks = callbacks};
  return share_failure(hooks.ranks, [&] { return train_with_folder(config, call); });
}

Outcome train_worker(const TrainOptions& options, const RunHooks& hooks) {
  Call call{.options = options, .hooks = hooks};
  return share_failure(hooks.ranks, [&] { return train_without_folder(call); });
}

Outcome train(const Config& config, const TrainOptions& options, std::span<Callback* const> callbacks) {
  return train(*config, options, callbacks, {});
}

Outcome resume(const std::filesystem::path& folder, const TrainOptions& options, std::span<Callback* const> callbacks) {
  const RunDirectory directory = RunDirectory::open(folder);
  return train(read_run_config(directory.config(), {}), options, callbacks, {.resume = &directory});
}

}  // namespace bantam::run
