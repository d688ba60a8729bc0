// run::train: a whole run of training, from a configuration to saved weights, without a line printed.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "bantam/engine/train/trainer.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/ranks/run_ranks.h"
#include "bantam/run/run.h"
#include "bantam/run/train/disk_room.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/run_observer.h"

namespace bantam::run {

/// Options of `train` for the library's own callers, beside a program's TrainOptions.
struct RunHooks {
  RunObserver* observer = nullptr;       ///< receives warnings in the place of TrainOptions::on_warning; may be null
  RunRanks ranks = {};                   ///< this process among those of the run
  const RunDirectory* resume = nullptr;  ///< RunDirectory::open of the run to go on with, instead of `folder`
  /// Asked between the steps of the start; true: it ends with StoppedBeforeTraining.
  std::function<bool()> stop_start = {};
  /// With several ranks: a number that is not 0 where a signal has made `stop` true; see Outcome::signal.
  std::function<int()> signal = {};
  std::string command = {};  ///< for run.json: what the user typed
  DiskCheck disk = {};       ///< a warning, or NoRoomOnDisk, where the run's files do not fit the disk
};

/// Trains the configuration's model on its data, as `bantam train` does: decides what is `auto`, plans the memory,
/// reserves it, trains, and saves into the run's folder, which is locked meanwhile, on the way (`checkpoint`) and at
/// the end. `callbacks` receive the trainer's events after the run's own log. A run that stops or fails saves what it
/// has trained and can be resumed:
///
///     RunDirectory folder = RunDirectory::open("runs/quickstart-…");
///     train(read_run_config(folder.config(), {}), {}, {}, {.resume = &folder});
///
/// Blocks until the end; uses no signal, no stream of the process and no global. Throws ConfigError (no data, a folder
/// in use), DeviceError, DataError, OutOfMemory, NoRoomOnDisk, NotFiniteError, StoppedBeforeTraining, and what
/// callbacks throw.
Outcome train(const RunConfig& config, const TrainOptions& options = {}, std::span<Callback* const> callbacks = {},
              const RunHooks& hooks = {});

/// A rank other than 0 of a run whose rank 0 calls train(): receives the configuration and the initial state from
/// there, reads its share of the data from where that configuration says, trains, and writes nothing. Only `threads`,
/// `stop`, `on_warning` and the hooks observer, ranks, stop_start and signal count. An error of any rank ends all: that
/// rank throws it, the others CommunicationError. Throws as train().
Outcome train_worker(const TrainOptions& options, const RunHooks& hooks);

}  // namespace bantam::run
