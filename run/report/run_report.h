// RunReport: all that a report says of a run, from the files in its folder and from its model; and what several runs
// differ in.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bantam/run/report/held_out.h"
#include "bantam/run/report/tensor_histogram.h"
#include "bantam/run/runs.h"
#include "bantam/run/train/metrics_history.h"

namespace bantam::run {

struct RunReportOptions {
  std::size_t most_points = 600;       ///< of each curve
  std::size_t most_histograms = 1200;  ///< of histograms.jsonl
  /// Absent: the run's files alone are read, not its weights, and no sample is looked at.
  std::optional<HeldOutOptions> held_out = HeldOutOptions{};
  MetricsFile* metrics = nullptr;  ///< the run's, which is read on; null: it is read whole
  std::function<void()> on_line;   ///< called before each line of the run's logs; what it throws ends the call
};

struct RunReport {
  std::string name;  ///< the folder's, or, of two with one name, the path
  ListedRun run;
  std::string config_text;                                  ///< config.yaml
  std::vector<std::pair<std::string, std::string>> config;  ///< every key by its path
  bool larger_is_better = true;                             ///< of the record's metric
  MetricsHistory history;
  std::vector<ReportedHistogram> histograms;  ///< of histograms.jsonl
  std::filesystem::path weights_file;         ///< that the next two are of; empty: no weights were read
  std::vector<ReportedHistogram> weights;
  std::optional<HeldOutAnswers> held_out;
  std::string no_weights, no_held_out;  ///< why there are none, in words

  /// Nobody trains it any more.
  bool has_ended() const { return run.state != "running" && run.state != "starting"; }
};

/// The folders of runs that `paths` name: a run's own, or, of a folder that holds runs (a sweep's), each of them by
/// name. Throws DataError for a folder without any.
std::vector<std::filesystem::path> run_folders(std::span<const std::filesystem::path> paths);

/// Reads a run's folder; it may be under way and is not disturbed. Held-out samples are those of the run's best weights
/// (checkpoint.best), else its last. Throws DataError where run.json, config.yaml or metrics.jsonl is damaged, and
/// EvaluationStopped; what is wrong with weights and data is reported in `no_weights` and `no_held_out`.
RunReport report_of(const std::filesystem::path& folder, const RunReportOptions& options);

/// The run with the best value of the metric that all runs have; null: there is no such metric.
const RunReport* best_of(std::span<const RunReport> reports);

/// "epoch 2 of 5": the one that is under way, or the last.
std::string position_text(const RunRecord& record);

/// One sentence: what came out.
std::string headline_of(std::span<const RunReport> reports);

/// Runs whose folders have one name are then named by their paths.
void make_names_distinct(std::span<RunReport> reports);

}  // namespace bantam::run
