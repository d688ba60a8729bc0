// CheckpointFolder: the checkpoints of one run on the disk, each whole or not there.
//
//     checkpoints/update-00001234/weights.safetensors   the model, for other programs
//                                 state.safetensors     all that a run goes on with
//                                 checkpoint.json       what of it is known, and length and SHA-256 of the files
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bantam/base/atomic_file.h"
#include "bantam/base/sha256.h"
#include "bantam/run/train/fingerprint.h"

namespace bantam::run {

/// The contents of checkpoint.json.
struct CheckpointFacts {
  std::int64_t updates = 0;            ///< updates of the whole run until there
  std::int64_t epoch = 0, update = 0;  ///< where the run goes on: epoch from 0, and updates done in it
  double loss = 0, accuracy = 0;       ///< of the epoch's updates so far; a loss that is not finite is read as NaN
  std::int64_t samples = 0;            ///< that they are of
  FileSum metrics;                     ///< of metrics.jsonl until there; of earlier programs the length alone
  FileSum histograms;                  ///< of histograms.jsonl, likewise
  FileSum events, validation_events;   ///< of TensorBoard's files, likewise
  double seconds = 0;                  ///< of training, over all sessions
  /// Epochs that the learning rate's schedule was made for, whatever is added to the run later.
  std::int64_t schedule_epochs = 1;
  std::int64_t schedule_updates = 0;  ///< in place of those: train.updates; 0: the epochs'
  std::string best_metric;   ///< that the best evaluation so far is of; empty: there was none, or it was not noted yet
  std::string best_weights;  ///< where that was of this checkpoint: of its "weights" or "averages"; else empty
  std::string best_sha256;   ///< of weights-best.safetensors; empty: there was none, or it was not noted yet
  Fingerprint fingerprint;
  std::string config_sha256;     ///< of config.yaml
  std::string run_id;            ///< RunRecord::id; empty: of an earlier program
  FileSum weights, state;        ///< the checkpoint's files, of one that is read; of earlier programs the lengths alone
  std::string written, program;  ///< when (UTC) and by which version: of a checkpoint that is read
};

/// A complete checkpoint.
struct Checkpoint {
  std::filesystem::path path;
  std::int64_t updates = 0;  ///< by its name

  std::filesystem::path weights() const { return path / "weights.safetensors"; }
  std::filesystem::path state() const { return path / "state.safetensors"; }
  std::filesystem::path facts() const { return path / "checkpoint.json"; }
  /// A file of it as one of the run's folder.
  static FolderFile in_run(const std::filesystem::path& file) { return {.path = file, .names = 3}; }
  /// Throws DataError naming the file where the checkpoint is damaged or of a later version: checkpoint.json is not as
  /// it was written, or a file is missing or has another length.
  CheckpointFacts read() const;
  /// The bytes of one of the two files, which `written` (CheckpointFacts::weights, state) describes. Throws DataError
  /// where they are others.
  std::string read_file(const std::filesystem::path& file, const FileSum& written) const;
  /// Throws DataError as read_file would.
  void check_file(const std::filesystem::path& file, const FileSum& written) const;
};

/// Whether a checkpoint's folder, as `--resume` may name it.
bool is_checkpoint(const std::filesystem::path& path);

/// `checkpoints/` of a run's folder, which belongs to one process (RunLock).
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path run) : path_(std::move(run) / "checkpoints") {}

  /// The newest first. Throws DataError where the folder cannot be read, or is a symbolic link.
  std::vector<Checkpoint> list() const;
  /// Writes a checkpoint: `write` writes weights and state into two files of a temporary folder, which is renamed when
  /// everything is on the disk. One of as many updates is replaced. Throws DataError; then nothing has changed.
  void write(const CheckpointFacts& facts,
             const std::function<void(AtomicFile& weights, AtomicFile& state)>& write) const;
  /// Removes all but the newest `keep`. Throws DataError.
  void keep_newest(std::int64_t keep) const;
  /// Removes those of more than `updates` updates, for good: of a run that goes on from an earlier one. Throws
  /// DataError.
  void remove_after(std::int64_t updates) const;
  /// Renumbers `checkpoint` for a run that goes on from it with epochs of another number of updates: it becomes that of
  /// `updates` updates, in its name and in checkpoint.json. Others that would be newer, by its old number or by the
  /// new one, are removed before, for good: it is the newest at every moment, also after a power cut. It must be sound.
  /// Returns it under its new name. Throws DataError; then it has one of the two numbers.
  Checkpoint renumber(const Checkpoint& checkpoint, std::int64_t updates) const;
  /// Removes what processes that were killed, or writes that failed, left half-written. Never fails.
  void remove_temporaries() const noexcept;

 private:
  std::filesystem::path path_;
};

}  // namespace bantam::run
