// train_sweep: the runs of a sweep one after another, without a line printed.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bantam/run/sweep/sweep_folder.h"
#include "bantam/run/train/run_observer.h"
#include "bantam/run/train/train.h"

namespace bantam::run {

/// Receivers of the events of one run of a sweep.
struct RunListeners {
  RunObserver* observer = nullptr;  ///< may be null
  std::vector<Callback*> callbacks = {};
};

/// Called by the thread that trains. Each run has on_ended_before, or on_begin and then on_end or on_failed; one that
/// is asked to stop has on_begin alone. `index` is that in Sweep::runs.
class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  /// An earlier session has trained it.
  virtual void on_ended_before(std::size_t index) { (void)index; }
  virtual RunListeners on_begin(std::size_t index, const RunConfig& config) {
    (void)index;
    (void)config;
    return {};
  }
  virtual void on_end(std::size_t index, const Outcome& outcome) {
    (void)index;
    (void)outcome;
  }
  virtual void on_failed(std::size_t index, const std::exception& error) {
    (void)index;
    (void)error;
  }
};

struct SweepOptions {
  int threads = 0;                        ///< see TrainOptions
  std::function<bool()> stop = {};        ///< asked between batches and runs; true: the sweep stops there, saved
  std::function<bool()> stop_start = {};  ///< see RunHooks
  std::string command = {};               ///< for the runs' run.json
  SweepObserver* observer = nullptr;      ///< may be null
};

struct SweepOutcome {
  bool stopped = false;                         ///< on request: runs are left to train
  std::map<std::size_t, std::string> failures;  ///< messages by the runs' indices
};

/// Trains each run as run::train does, in a folder of its own, in the order of Sweep::runs. A run that has ended is
/// left as it is; one that was stopped, killed or has failed goes on from its newest checkpoint. A run that fails does
/// not end the sweep. Only what observers throw does.
SweepOutcome train_sweep(const Sweep& sweep, const SweepOptions& options = {});

}  // namespace bantam::run
