// Sweep: the folder of a sweep: sweep.json and sweep.yaml say what is to be trained, and each run has a folder in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bantam/run/sweep/sweep_plan.h"
#include "bantam/run/train/run_lock.h"

namespace bantam::run {

/// One run of a sweep.
struct SweepRun {
  std::size_t setting = 0;  ///< of Sweep::settings
  std::uint64_t seed = 0;
  std::filesystem::path folder;
};

/// Locked (RunLock) for as long as the object lives.
class Sweep {
 public:
  /// Reads the configuration of every setting, so that whatever is wrong with one is said before any is trained, then
  /// makes `folder`, or runs/<name>-<date-time> where it is empty. Throws ConfigError for a folder with a run or a
  /// sweep in it, and a configuration without data; DeviceError for a device that is not there.
  static Sweep create(SweepPlan plan, const std::filesystem::path& folder, const std::string& name);
  /// The sweep in `folder`, to go on with. Throws DataError where there is none, or it is damaged, ConfigError where
  /// another process uses it.
  static Sweep open(const std::filesystem::path& folder);
  /// Whether `folder` is that of a sweep.
  static bool is_in(const std::filesystem::path& folder);

  /// More runs of each setting: the seeds that follow. Throws ConfigError for fewer than there are.
  void set_repeat(std::int64_t repeat);

  const std::filesystem::path& folder() const { return folder_; }
  const SweepPlan& plan() const { return plan_; }
  const std::vector<SweepSetting>& settings() const { return settings_; }
  /// In the order in which they are trained: every setting with its first seed, then every setting with its second.
  const std::vector<SweepRun>& runs() const { return runs_; }
  RunConfig config_of(const SweepRun& run) const;
  /// "learning_rate=0.1, seed=43": what differs between runs.
  std::string text_of(const SweepRun& run) const;

 private:
  Sweep(SweepPlan plan, std::filesystem::path folder);
  void list_runs();
  void write() const;
  std::string name_of(std::size_t setting, std::uint64_t seed) const;

  SweepPlan plan_;
  std::vector<SweepSetting> settings_;
  std::vector<std::uint64_t> seeds_;  // of each setting, the first
  std::filesystem::path folder_;
  std::vector<SweepRun> runs_;
  std::unique_ptr<RunLock> lock_;
};

}  // namespace bantam::run
