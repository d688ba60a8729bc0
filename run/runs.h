// The runs in a folder, as their records, locks and files tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bantam/run/train/metrics_history.h"
#include "bantam/run/train/run_record.h"

namespace bantam::run {

/// A run as it is now.
struct ListedRun {
  std::filesystem::path path;
  /// The record of run.json. Where a run has not ended by itself, or has failed, position, time and best evaluation
  /// are those of its metrics.jsonl; where it was killed, the position is at least that of its newest checkpoint.
  RunRecord record;
  /// The record's state; "killed" where it says starting or running and no process has the folder's lock.
  std::string state;
  std::uint64_t bytes = 0;  ///< of all files in the folder
};

/// The run in `folder`. Throws DataError where there is none, or its run.json cannot be read.
ListedRun listed_run(const std::filesystem::path& folder);
/// The same, and all that its metrics.jsonl says, by `metrics`, which reads on. Throws DataError where it is damaged,
/// and what `on_line` throws (MetricsFile::read).
ListedRun listed_run(const std::filesystem::path& folder, MetricsFile& metrics, std::size_t most_points,
                     MetricsHistory& history, const std::function<void()>& on_line = {});

struct RunList {
  std::vector<ListedRun> runs;          ///< the one whose session began last comes first
  std::vector<std::string> unreadable;  ///< a message for each folder that could not be read, with its path
};

/// The runs (folders with run.json) directly in `folder`, and `folder` itself where it is one. Reads only; a run that
/// is under way is not disturbed. Throws DataError where `folder` cannot be read.
RunList list_runs(const std::filesystem::path& folder);

}  // namespace bantam::run
