// One run after another.
#include "bantam/run/sweep/train_sweep.h"

#include <optional>
#include <system_error>

#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/plain_words.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/training_run.h"

namespace bantam::run {
namespace {

bool ended_before(const SweepRun& run) {
  const std::optional<RunRecord> record = read_record(run.folder / "run.json");
  return record && has_ended(*record);
}

bool is_asked(const std::function<bool()>& stop) { return stop && stop(); }

/// A run that was begun goes on with its own configuration, in which nothing is `auto` any more.
Outcome train_one(const Sweep& sweep, std::size_t index, const SweepOptions& options, SweepObserver& observer) {
  const SweepRun& run = sweep.runs().at(index);
  require_no_links({.path = run.folder});
  std::error_code error;
  std::optional<RunDirectory> begun;
  if (std::filesystem::exists(run.folder / "config.yaml", error)) begun.emplace(RunDirectory::open(run.folder));
  const RunConfig config = begun ? read_run_config(begun->config(), {}) : sweep.config_of(run);
  const RunListeners listeners = observer.on_begin(index, config);
  return train(
      config,
      {.threads = options.threads, .folder = begun ? std::filesystem::path() : run.folder, .stop = options.stop},
      listeners.callbacks,
      {.observer = listeners.observer,
       .resume = begun ? &*begun : nullptr,
       .stop_start = options.stop_start,
       .command = options.command});
}

}  // namespace

SweepOutcome train_sweep(const Sweep& sweep, const SweepOptions& options) {
  SweepObserver silent;
  SweepObserver& observer = options.observer != nullptr ? *options.observer : silent;
  SweepOutcome outcome;
  for (std::size_t i = 0; i < sweep.runs().size(); ++i) {
    if (ended_before(sweep.runs()[i])) {
      observer.on_ended_before(i);
      continue;
    }
    outcome.stopped = is_asked(options.stop);
    if (outcome.stopped) return outcome;
    try {
      const Outcome trained = train_one(sweep, i, options, observer);
      outcome.stopped = trained.result.stopped && is_asked(options.stop);
      if (outcome.stopped) return outcome;
      observer.on_end(i, trained);
    } catch (const StoppedBeforeTraining&) {
      outcome.stopped = true;
      return outcome;
    } catch (const std::exception& error) {
      outcome.failures[i] = plain_words(error);
      observer.on_failed(i, error);
    }
  }
  return outcome;
}

}  // namespace bantam::run
