// run::train: a whole run of training, from a configuration to saved weights, without a line printed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/train/trainer.h"
#include "bantam/memory/limits/process_limit.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/ranks/run_ranks.h"
#include "bantam/run/train/compressed_size.h"
#include "bantam/run/train/disk_room.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/run_observer.h"

namespace bantam::run {

/// Options of one run that are not part of its configuration.
struct TrainRunOptions {
  int threads = 0;                       ///< of the CPU; 0: all processors. Results do not depend on it
  std::filesystem::path run_dir;         ///< empty: runs/<config>-<date-time>
  bool overwrite = false;                ///< replace a run that is in run_dir, else ConfigError
  const RunDirectory* resume = nullptr;  ///< RunDirectory::open of the run to go on with, instead of run_dir
  bool accept_changes = false;           ///< with resume: of keys that decide what an update computes
  std::function<bool()> stop = {};       ///< asked between batches; true: the run stops there and is saved
  /// Asked between the steps of the start; true: it ends with StoppedBeforeTraining.
  std::function<bool()> stop_start = {};
  std::string command = {};         ///< for run.json: what the user typed
  RunObserver* observer = nullptr;  ///< may be null
  RunRanks ranks = {};              ///< this process among those of the run
  DiskCheck disk = {};              ///< a warning, or NoRoomOnDisk, where the run's files do not fit the disk
  /// With several ranks: a number that is not 0 where a signal has made `stop` true; see TrainOutcome::signal.
  std::function<int()> signal = {};
};

/// A run that has ended and is saved.
struct TrainOutcome {
  RunConfig config;              ///< as it ran: nothing is `auto` any more
  std::filesystem::path folder;  ///< run.json, config.yaml, metrics.jsonl, weights.safetensors, checkpoints/
  bool finished_before = false;  ///< of a resumed run that had all of its epochs already: nothing was trained
  TrainResult result;
  std::string reason = {};           ///< of a finished run: why it ended before its last epoch, as run.json has it
  double best = 0;                   ///< of the metric that checkpoint.best names
  std::int64_t best_epoch = 0;       ///< from 1; 0: checkpoint.best is off, or there was no evaluation
  std::int64_t effective_batch = 1;  ///< samples an update
  std::int64_t parameters = 0;
  MemoryStats memory;                    ///< of the run's device
  std::uint64_t planned_peak_bytes = 0;  ///< of a whole run: the most of one that was stopped or resumed
  std::uint64_t planned_pool_bytes = 0;
  ProcessMemory process;                    ///< what is counted for the process on that device, at the end
  std::vector<OverheadLine> overhead;       ///< its part beside the pool; none on the CPU
  std::int64_t broken_samples = 0;          ///< that `on_error: skip` replaced
  std::vector<std::string> broken_reasons;  ///< of the first few, each with its file's name
  std::optional<CompressedSize> weights;    ///< weights.safetensors of a run that prunes
  std::optional<MemoryStats> host, pinned;  ///< runs on a GPU: the data set's, and the upload buffers'
  std::string transport = {};               ///< how sums of several GPUs travel: TrainingStep::transport
  int signal = 0;                           ///< of the first rank that has one, on every rank: TrainRunOptions::signal
};

/// Trains the configuration's model on its data, as `bantam train` does: decides what is `auto`, plans the memory,
/// reserves it, trains, and saves into the run's folder, which is locked meanwhile, on the way (`checkpoint`) and at
/// the end. `callbacks` hear the trainer's events after the run's own log. A run that stops or fails saves what it has
/// trained and can be resumed:
///
///     RunDirectory folder = RunDirectory::open("runs/quickstart-…");
///     train(read_run_config(folder.config(), {}), {.resume = &folder}, {});
///
/// Blocks until the end; uses no signal, no stream of the process and no global. Throws ConfigError (no data, a folder
/// in use), DeviceError, DataError, OutOfMemory, NoRoomOnDisk, NotFiniteError, StoppedBeforeTraining, and what
/// callbacks throw.
TrainOutcome train(const RunConfig& config, const TrainRunOptions& options = {},
                   std::span<Callback* const> callbacks = {});

/// A rank other than 0 of a run whose rank 0 calls train(): gets the configuration and the beginning from there, reads
/// its share of the data from where that configuration says, trains, and writes nothing. Of the options run_dir,
/// overwrite, resume, accept_changes and command do not count. An error of any rank ends all: that rank throws it, the
/// others CommunicationError. Throws as train().
TrainOutcome train_beside(const TrainRunOptions& options);

}  // namespace bantam::run
