// When a copy is taken, and how it becomes a checkpoint.
#include "bantam/run/train/run_saver.h"

#include <cmath>
#include <ctime>
#include <exception>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/sha256.h"

namespace bantam::run {
namespace {

/// Lines that a checkpoint counts are on the disk before it is. Where that fails, the run goes on without them.
void sync_file(const FolderFile& file) {
  try {
    if (const FileDescriptor opened = open_file(file, O_RDONLY)) (void)::fsync(opened.get());
  } catch (const DataError&) {  // the log itself tells
  }
}

}  // namespace

RunSaver::RunSaver(const SavedRun& run, RunRecord record, std::unique_ptr<StateSnapshot> snapshot,
                   std::int64_t updates_per_epoch)
    : run_(run),
      record_(std::move(record)),
      updates_per_epoch_(updates_per_epoch),
      schedule_(run.config.checkpoint, updates_of(run.position.epoch, run.position.update), run.position.epoch, begun_),
      snapshot_(std::move(snapshot)) {
  record_.id = run.facts.run_id;
  snapshot_->set_metadata({{kRunIdKey, record_.id}}, weights_metadata(run.config));
  keep_best();
  record_.epoch = run.position.epoch;
  record_.update = run.position.update;
  record_.updates = updates_of(run.position.epoch, run.position.update);
}

/// run.json and the best weights may be of updates after the checkpoint that the run goes on from.
void RunSaver::keep_best() {
  const auto write = [this](const BestEvaluation& best) {
    snapshot_->copy();
    snapshot_->wait();
    (void)write_best_weights(run_.directory.best_weights(), *snapshot_, run_.config, best);
  };
  keep_best_weights({.config = run_.config,
                     .directory = run_.directory,
                     .facts = run_.facts,
                     .position = run_.position,
                     .metric = record_.metric},
                    write, [this](std::string_view text) { run_.observer.on_warning(text); });
  if (run_.config.checkpoint.best && run_.position.best_epoch > 0)
    best_sha256_ = sum_of({.path = run_.directory.best_weights()}).finished().sha256;
  const bool is_here = run_.position.best_epoch > 0 && run_.facts.best_weights == evaluated_weights(run_.config);
  best_updates_ = is_here ? updates_of(run_.position.epoch, run_.position.update) : -1;
  note_best();
}

void RunSaver::note_best() {
  const BestEvaluation best = best_of(run_.position, run_.config);
  record_.metric = best.metric;
  record_.best = best.value;
  record_.best_epoch = best.epoch;
}

double RunSaver::seconds() const {
  return run_.facts.seconds + std::chrono::duration<double>(CheckpointSchedule::Clock::now() - begun_).count();
}

bool RunSaver::due(std::int64_t epoch, std::int64_t update) {
  poll();
  const std::int64_t all = run_.config.train.updates;
  const bool ends = (epoch == run_.config.train.epochs && update == 0) || (all > 0 && updates_of(epoch, update) >= all);
  if (ends) return false;  // finish() saves it
  const auto now = CheckpointSchedule::Clock::now();
  const bool is_due = schedule_.due(updates_of(epoch, update), epoch, now);
  if (best_is_new_) end_writing();  // these weights are gone with the next update: they are not left to a later one
  if (copying_ || writing_ || !(is_due || best_is_new_)) return false;
  try_best();
  schedule_.note_saved(now);
  return true;
}

void RunSaver::copy() { snapshot_->copy(); }

void RunSaver::move_to(const TrainerPosition& position) {
  run_.position.epoch = position.epoch;
  run_.position.update = position.update;
  run_.position.sum = numbers_of(position.sum);
  run_.position.evaluated = position.evaluated;
  run_.position.stop_early = position.stop_early;
  record_.epoch = position.epoch;
  record_.update = position.update;
  record_.updates = updates_of(position.epoch, position.update);
}

CheckpointFacts RunSaver::facts_of(const TrainerPosition& position) {
  CheckpointFacts facts = run_.facts;
  facts.updates = updates_of(position.epoch, position.update);
  facts.epoch = position.epoch;
  facts.update = position.update;
  facts.loss = position.sum.loss;
  facts.accuracy = position.sum.accuracy;
  facts.samples = position.sum.samples;
  facts.metrics = run_.log.position();
  const RunLogsPosition logs = run_.logs.position();
  facts.histograms = logs.histograms;
  facts.events = logs.events;
  facts.validation_events = logs.validation_events;
  facts.seconds = seconds();
  facts.config_sha256 = record_.config_sha256;
  facts.best_metric = best_of(run_.position, run_.config).metric;
  facts.best_weights = facts.updates == best_updates_ ? evaluated_weights(run_.config) : "";
  return facts;
}

void RunSaver::save(const TrainerPosition& position) {
  move_to(position);
  save_host();
  copying_ = Job{.facts = facts_of(position), .best = std::exchange(best_is_new_, false)};
  poll();
}

void RunSaver::save_host() {
  snapshot_->read_host();
  snapshot_best_ = best_of(run_.position, run_.config);
  algorithms_ = run_.algorithms.chosen();
}

/// Moves the checkpoint under way on, as far as that needs no waiting.
void RunSaver::poll() {
  if (copying_ && snapshot_->done()) begin_writing();
  if (writing_ && task_.finished()) end_writing();
}

void RunSaver::begin_writing() {
  writing_ = std::exchange(copying_, std::nullopt);
  task_.start([this, job = *writing_] { write(job.facts, job.best, false); });
}

void RunSaver::end_writing() {
  if (copying_) {
    snapshot_->wait();
    begin_writing();
  }
  if (!writing_) return;
  const Job job = *std::exchange(writing_, std::nullopt);
  try {
    task_.wait();
    written_ = job.facts;
    if (job.best) best_is_lost_ = false;
    if (std::exchange(failing_, false)) run_.observer.on_warning("checkpoints are written again");
    report_not_removed();
    note(RunState::running, "");
  } catch (const std::exception& failure) {
    ++failures_;
    warn_of(failure.what());
    lacks_best_ = job.best;
  }
}

void RunSaver::report_not_removed() {
  if (!not_removed_.empty())
    run_.observer.on_warning(fmt::format("{}; the next checkpoint tries again", std::exchange(not_removed_, "")));
}

/// Before the snapshot becomes another one: the best weights that could not be written are tried a second time.
void RunSaver::try_best() {
  if (!std::exchange(lacks_best_, false) || best_is_new_) return;
  try {
    write_best();
  } catch (const DataError& failure) {
    best_is_lost_ = true;
    run_.observer.on_warning(
        fmt::format("{}; the best weights, of epoch {}, are lost", failure.what(), run_.position.best_epoch));
  }
}

void RunSaver::warn_of(const std::string& failure) {
  failing_ = true;
  run_.observer.on_warning(fmt::format("{}; training goes on, and the next checkpoint tries again{}", failure,
                                       written_ ? fmt::format("; there is one of update {}", written_->updates) : ""));
}

/// By whichever thread has the snapshot: touches no device and nothing that training changes. The best weights come
/// before the checkpoint that knows of them, the final ones before the checkpoint that ends the run: where the process
/// is killed in between, the run goes on from before, to the same weights. Final weights that cannot be written do not
/// stand in the way of the state, from which a resumed run writes them.
void RunSaver::write(const CheckpointFacts& facts, bool best, bool last) {
  make_folders(run_.directory.path());  // somebody may have moved it: what was trained is not lost
  std::error_code error;
  if (!std::filesystem::exists(run_.directory.config(), error))
    write_file_atomically(FolderFile{run_.directory.config()}, run_.config.document.resolved_yaml());
  run_.algorithms.save_with_run(run_.directory.algorithms(), algorithms_);
  sync_logs();
  if (best) write_best();
  std::optional<DataError> failure;
  try {
    if (last) write_last();
  } catch (const DataError& error) {
    failure = error;
  }
  CheckpointFacts written = facts;
  written.best_sha256 = facts.best_metric.empty() ? "" : best_sha256_;
  run_.directory.checkpoints().write(written, [&](AtomicFile& weights, AtomicFile& state) {
    snapshot_->write_weights(weights);
    snapshot_->write(state);
  });
  try {
    run_.directory.checkpoints().keep_newest(run_.config.checkpoint.keep_last);
  } catch (const DataError& error) {
    not_removed_ = error.what();  // what is new is there all the same
  }
  if (failure) throw *failure;
}

void RunSaver::sync_logs() const {
  sync_file({.path = run_.directory.metrics()});
  sync_file({.path = run_.directory.histograms()});
  sync_file({.path = run_.directory.events(), .names = 3});
  sync_file({.path = run_.directory.validation_events(), .names = 3});
}

void RunSaver::write_best() {
  best_sha256_ = write_best_weights(run_.directory.best_weights(), *snapshot_, run_.config, snapshot_best_);
}

/// The files beside the checkpoints at a run's end: each is tried.
void RunSaver::write_last() const {
  std::optional<DataError> failure;
  try {
    if (run_.config.train.optimizer.ema) {
      AtomicFile file(FolderFile{run_.directory.average_weights()});
      snapshot_->write_average(file);
      file.commit();
    }
  } catch (const DataError& error) {
    failure = error;
  }
  AtomicFile file(FolderFile{run_.directory.weights()});
  snapshot_->write_weights(file);
  file.commit();
  if (failure) throw *failure;
}

void RunSaver::on_evaluated(const EvaluatedEvent& event) {
  const WatchedMetric rule = best_rule(run_.config);
  const double value = value_of(event.validation, rule.metric);
  Position& position = run_.position;
  const bool better = rule.larger ? value > position.best : value < position.best;
  if (!std::isfinite(value) || (position.best_epoch > 0 && !better)) return;
  position.best = value;
  position.best_epoch = event.epoch + 1;
  best_updates_ = updates_of(event.epoch, event.update);
  note_best();
  best_is_new_ = run_.config.checkpoint.best.has_value();
}

void RunSaver::on_test(const TestEvent& event) {
  run_.position.tested = event.updates;
  tested_ = true;
}

void RunSaver::finish(const TrainerPosition& position) {
  end_writing();
  move_to(position);
  const bool there = written_ && written_->updates == record_.updates && written_->epoch == position.epoch;
  if (there && !tested_) {  // the snapshot is its
    sync_logs();
    write_last();
  } else {
    try_best();
    snapshot_->copy();
    save_host();
    snapshot_->wait();
    write(facts_of(position), best_is_new_, true);
    best_is_lost_ = best_is_lost_ && !best_is_new_;
    report_not_removed();
  }
  if (best_is_lost_)
    throw DataError(fmt::format("{} is not that of epoch {}, which was best; all else of the run is saved",
                                run_.directory.best_weights().string(), run_.position.best_epoch));
}

void RunSaver::set_broken(const BrokenSamples& broken) {
  record_.broken_samples = broken.count();
  record_.broken_reasons.clear();
  for (const BrokenSamples::Sample& sample : broken.first()) record_.broken_reasons.push_back(sample.reason);
}

void RunSaver::note(RunState state, const std::string& reason) {
  record_.state = state;
  record_.reason = reason;
  record_.seconds = seconds();
  record_.updated = std::time(nullptr);
  note_versions(record_);
  try {
    write_record(run_.directory.record(), record_);
    record_fails_ = false;
  } catch (const DataError& error) {
    if (!std::exchange(record_fails_, true)) run_.observer.on_warning(error.what());
  }
}

}  // namespace bantam::run
