// Trials of a run: `train --dry-run` and `train --fast-dev-run N`, which keep nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bantam/cli/options/run_names.h"
#include "bantam/run/run.h"

namespace bantam::cli {

/// A run's folder below the system's temporary folder, removed at the end.
class TrialFolder {
 public:
  TrialFolder();
  ~TrialFolder();
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Overrides that end a run of `config` after `updates` updates and an evaluation of as many batches.
std::vector<std::string> fast_dev_overrides(const RunConfig& config, std::int64_t updates);

/// The data set's own held-out samples, of which the configuration can name no number: the first so many batches.
void limit_held_out(RunConfig& config, std::int64_t batches);

/// `cache: disk` would pack the whole set into the trial's folder, and the system's temporary folder may be small, or
/// lie in memory: samples are read as they are used, to the same bits. A folder that the configuration names stays.
void pack_nothing(RunConfig& config);

/// The result of the trial, in words or as JSON: a dry run, where nothing was trained, or a few updates.
std::string trial_text(const run::Outcome& outcome);
std::string trial_json(const run::Outcome& outcome);

}  // namespace bantam::cli
