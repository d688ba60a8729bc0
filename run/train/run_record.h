// RunRecord: what a run's run.json says of it: what ran where, with which versions, and how far it came.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

enum class RunState : std::uint8_t { starting, running, stopped, finished, failed };

std::string_view to_string(RunState state);

/// RunRecord::reason of a run that train.max_time has stopped.
constexpr std::string_view kOutOfTime = "train.max_time";

/// Times are seconds since 1970, UTC.
struct RunRecord {
  /// The same for all of its files: of what decides the bits of its updates when it begins, so that runs of one
  /// configuration on the same data have one. Empty: it has not begun to train, or is from before it was noted.
  std::string id;
  RunState state = RunState::starting;
  std::string reason;       ///< why it stopped or failed, or what ended it; may be empty
  std::string name, model;  ///< of the configuration
  std::string device, precision;
  int ranks = 1;                        ///< processes of this session, that share the replicas
  std::string command;                  ///< of the process; empty: an embedding program's run
  std::string executable;               ///< the file of the program that ran it; empty: not noted
  std::string config_sha256;            ///< of config.yaml
  std::string weights, weights_sha256;  ///< the file of model.weights; empty: none
  std::string git_commit;               ///< of the folder that the process was started in; empty: there is none
  std::vector<std::pair<std::string, std::string>> versions;  ///< of this program and its libraries
  std::int64_t created = 0, started = 0, updated = 0;         ///< first session, this session, this file
  std::int64_t sessions = 0;
  double seconds = 0;  ///< of training, over all sessions
  /// Seconds of making weights from the data, updates and evaluations, over all sessions that have ended: not of
  /// reading data, planning and saving. 0: of a run from before it was noted.
  double compute_seconds = 0;
  std::int64_t epochs = 0;                          ///< that it is to have
  std::int64_t epoch = 0, update = 0, updates = 0;  ///< position; updates over all epochs
  std::vector<std::string> class_names;             ///< of the data, in the order of their numbers; empty: none
  std::string watched;  ///< the metric that evaluations are compared by; empty: of a run from before it was noted
  bool larger_is_better = true;  ///< whether a larger `watched` is better
  std::string metric;            ///< that `best` is of; empty: there was no evaluation
  double best = 0;
  std::int64_t best_epoch = 0;              ///< from 1
  std::int64_t broken_samples = 0;          ///< that `on_error: skip` replaced in this session
  std::vector<std::string> broken_reasons;  ///< reasons for the first few, each with its file's name

  bool operator==(const RunRecord&) const = default;
};

/// Makes the record of a session that begins.
RunRecord record_of(const RunConfig& config, const std::string& command);

/// The key of RunRecord::id in the metadata of files of tensors.
constexpr const char* kRunIdKey = "bantam.run";

/// Makes the metadata of the run's files of weights: "class_names", a JSON list, where the data have them.
std::map<std::string, std::string> weights_metadata(const RunConfig& config);

/// Sets `versions` to this program's and those of the libraries that the process has loaded by now: of a run on a GPU,
/// CUDA's as its kernels ask for them.
void note_versions(RunRecord& record);

/// Writes it whole or not at all. Throws DataError.
void write_record(const std::filesystem::path& path, const RunRecord& record);
/// Throws DataError naming the file and what is wrong with it.
RunRecord load_record(const std::filesystem::path& path);
/// Whether the run has trained as long as it was to: finished, or at the end of train.max_time.
bool has_ended(const RunRecord& record);
/// Nothing where there is none, or none that can be read.
std::optional<RunRecord> read_record(const std::filesystem::path& path);

/// `error`, of a configuration that this program could not read; where another program has made the run in `folder`,
/// with which one to use it, for that may have layers of its own.
ConfigError with_program_of(const ConfigError& error, const std::filesystem::path& folder);

/// The commit that is checked out in `folder` or one above it, 40 hexadecimal digits; empty: no repository.
std::string git_commit_of(std::filesystem::path folder);

}  // namespace bantam::run
