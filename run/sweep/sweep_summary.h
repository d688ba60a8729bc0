// The summary of a sweep's runs: means and deviations by setting, the best setting first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/run/sweep/sweep_folder.h"

namespace bantam::run {

/// Mean, deviation and range of several numbers.
struct Spread {
  std::int64_t count = 0;
  double mean = 0;
  std::optional<double> deviation;  ///< a sample's: its square is Σ (x - mean)² / (count - 1); nothing for one number
  double least = 0, most = 0;
};

Spread spread_of(std::span<const double> numbers);

/// The facts that a run's folder has of its result.
struct SweepResult {
  /// As ListedRun::state; "none" where the run has not begun, "damaged" where run.json is damaged, "failed" also
  /// where a run failed before it had a folder.
  std::string state = "none";
  std::string reason;
  bool ended = false;          ///< it has trained as long as it was to
  double seconds = 0;          ///< of training, over all sessions
  double compute_seconds = 0;  ///< training without saving, plus making weights from the data; 0: not known
  /// The last evaluation, "validation_loss"; the last epoch, "train_loss"; the test samples, "test_loss"; and the best
  /// evaluation of what the run watches, "best_validation_accuracy". Values that are not finite are missing.
  std::map<std::string, double> values;
};

/// Reads the run's run.json, and of its metrics.jsonl the named metrics.
SweepResult read_result(const std::filesystem::path& folder, const std::vector<std::string>& metrics);

struct SettingSummary {
  std::size_t setting = 0;               ///< of Sweep::settings
  std::int64_t ended = 0;                ///< runs that count
  std::map<std::string, Spread> values;  ///< values over the ended runs, by the names of SweepResult::values
  Spread seconds, compute_seconds;
};

struct SweepSummary {
  /// The value that settings are compared by, as the first setting says: of SweepResult::values, that of the weights a
  /// run keeps. That is the best evaluation where checkpoint.best or stop_early.restore_best keeps its weights, else
  /// the last; without evaluations the last epoch's training.
  std::string watched;
  WatchedMetric metric;
  std::vector<std::string> metrics;      ///< loss, and what the configuration counts
  std::vector<SweepResult> results;      ///< one for each of Sweep::runs
  std::vector<SettingSummary> settings;  ///< the best comes first, those without a value last
};

/// Reads every run's folder. `failures`: the messages of runs that failed, by their index in Sweep::runs; a run that
/// failed before its first update has no folder to say so.
SweepSummary summary_of(const Sweep& sweep, const std::map<std::size_t, std::string>& failures = {});

}  // namespace bantam::run
