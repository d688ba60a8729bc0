// RunObserver: what a run tells beside the trainer's events.
#pragma once

#include <string_view>

#include "bantam/run/fit/run_plan.h"
#include "bantam/run/fit/settle.h"
#include "bantam/run/session/run_directory.h"

namespace bantam::run {

/// A run whose first batch is about to be trained on. References are valid for the call; `runtime` is until on_saved or
/// the end of run::train.
struct RunBeginning {
  const RunConfig& config;  ///< settled
  const RunDirectory& directory;
  const RunPlan& plan;
  Runtime& runtime;
};

/// Called by the thread that trains, in the order below.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// `auto` and whatever a budget asks for are decided; nothing is allocated.
  virtual void on_settled(const RunConfig& config, const Settled& settled) {
    (void)config;
    (void)settled;
  }
  /// Data, model and memory are there. From here on a wish to stop is heard, and the run is saved.
  virtual void on_ready() {}
  /// The folder is there, and locked.
  virtual void on_begin(const RunBeginning&) {}
  /// The trainer has ended, or thrown; saving comes next.
  virtual void on_trained() {}
  /// All that was trained is on the disk.
  virtual void on_saved() {}
  /// At any time: what the user has to know and the run survives. Must not throw.
  virtual void on_warning(std::string_view text) { (void)text; }
};

}  // namespace bantam::run
