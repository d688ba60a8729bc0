// A record, a lock and a sum of sizes for each folder.
#include "bantam/run/runs.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/printable.h"
#include "bantam/run/train/checkpoint_folder.h"
#include "bantam/run/train/run_lock.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

/// Files come and go while a run writes: those that are gone are not counted. Links are not followed.
std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::vector<fs::path> folders = {folder};
  while (!folders.empty()) {
    const fs::path at = std::move(folders.back());
    folders.pop_back();
    std::error_code error;
    for (fs::path& entry : folder_entries(at, error)) {
      std::error_code gone;
      const fs::file_status status = fs::symlink_status(entry, gone);
      if (fs::is_directory(status)) {
        folders.push_back(std::move(entry));
      } else if (fs::is_regular_file(status)) {
        if (const std::uintmax_t size = fs::file_size(entry, gone); !gone) bytes += size;
      }
    }
  }
  return bytes;
}

std::string state_of(const RunRecord& record, const fs::path& folder) {
  const bool ended = record.state != RunState::starting && record.state != RunState::running;
  return ended || RunLock::is_locked(folder) ? std::string(to_string(record.state)) : "killed";
}

/// The record of a run that was killed may be older than its last checkpoint, from which it can be resumed.
void move_to_newest_checkpoint(RunRecord& record, const fs::path& folder) {
  try {
    const std::vector<Checkpoint> checkpoints = CheckpointFolder(folder).list();
    if (checkpoints.empty()) return;
    const CheckpointFacts facts = checkpoints.front().read();
    record.epoch = facts.epoch;
    record.update = facts.update;
    record.updates = facts.updates;
    record.seconds = facts.seconds;
  } catch (const DataError&) {  // damaged: the record is what is known
  }
}

/// run.json is written with each checkpoint alone, and metrics.jsonl after each few updates.
bool may_lag(const std::string& state) { return state != "finished" && state != "stopped"; }

void move_to_metrics(RunRecord& record, const MetricsHistory& history) {
  record.seconds = std::max(record.seconds, history.seconds);
  if (history.updates > record.updates) {
    record.epoch = history.epoch;
    record.update = history.update;
    record.updates = history.updates;
  } else if (history.updates == record.updates && history.epoch > record.epoch) {  // the epoch has ended since
    record.epoch = history.epoch;
    record.update = history.update;
  }
  if (record.watched.empty()) return;
  auto found = history.evaluations.find("validation_" + record.watched);
  if (found == history.evaluations.end()) found = history.evaluations.find("validation_binary_" + record.watched);
  if (found == history.evaluations.end()) return;
  const MetricsHistory::Extremes& all = found->second;
  record.metric = record.watched;
  record.best = record.larger_is_better ? all.largest : all.least;
  record.best_epoch = record.larger_is_better ? all.largest_epoch : all.least_epoch;
}

/// As its own files but metrics.jsonl say.
ListedRun recorded_run(const fs::path& folder) {
  const fs::path file = folder / "run.json";
  RunRecord record = load_record(file);
  std::string state = state_of(record, folder);
  if (state == "killed") {  // or it ended since: the lock is released after the last record
    record = load_record(file);
    state = state_of(record, folder);
  }
  if (state == "killed") move_to_newest_checkpoint(record, folder);
  return {.path = folder, .record = std::move(record), .state = std::move(state), .bytes = bytes_in(folder)};
}

void add_run(RunList& list, const fs::path& folder) {
  const fs::path file = folder / "run.json";
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found || error == std::errc::not_a_directory) return;
  if (status.type() == fs::file_type::none) {
    list.unreadable.push_back(fmt::format("cannot read {}: {}", printable_line(folder.string()), error.message()));
    return;
  }
  try {
    list.runs.push_back(listed_run(folder));
  } catch (const DataError& damaged) {
    if (fs::exists(file, error)) list.unreadable.emplace_back(damaged.what());  // else it was removed meanwhile
  }
}

}  // namespace

ListedRun listed_run(const fs::path& folder) {
  ListedRun run = recorded_run(folder);
  constexpr std::size_t kFewPoints = 4;  // no curve is looked at
  if (!may_lag(run.state)) return run;
  try {
    move_to_metrics(run.record, MetricsFile(folder / "metrics.jsonl").read(kFewPoints));
  } catch (const DataError&) {  // damaged: the record is what is known
  }
  return run;
}

ListedRun listed_run(const fs::path& folder, MetricsFile& metrics, std::size_t most_points, MetricsHistory& history,
                     const std::function<void()>& on_line) {
  ListedRun run = recorded_run(folder);
  history = metrics.read(most_points, on_line);
  if (may_lag(run.state)) move_to_metrics(run.record, history);
  return run;
}

RunList list_runs(const fs::path& folder) {
  std::vector<fs::path> folders = {folder};
  std::error_code error;
  std::ranges::move(folder_entries(folder, error), std::back_inserter(folders));
  if (error) throw DataError(fmt::format("cannot read {}: {}", printable_line(folder.string()), error.message()));
  RunList list;
  for (const fs::path& path : folders) add_run(list, path);
  std::ranges::sort(list.runs, [](const ListedRun& a, const ListedRun& b) {
    return std::pair(a.record.started, a.path) > std::pair(b.record.started, b.path);
  });
  std::ranges::sort(list.unreadable);
  return list;
}

}  // namespace bantam::run
