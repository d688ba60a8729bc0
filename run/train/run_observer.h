// RunObserver: events of a run besides the trainer's.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/train/run_directory.h"

namespace bantam::run {

/// A run whose first batch is about to be trained on. References are valid for the call; `runtime` is until on_saved or
/// the end of run::train.
struct RunStart {
  const RunConfig& config;  ///< nothing in it is `auto`
  const RunDirectory& directory;
  const RunPlan& plan;
  Runtime& runtime;
};

/// Called by the thread that trains, in the order below.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Every `auto` and the recompute policy of a budget are decided; nothing is allocated yet.
  virtual void on_decided(const RunConfig& config, const DecisionLog& log) {
    (void)config;
    (void)log;
  }
  /// While a set of the data ("train", "validation", "test") is read into memory or packed into a file, by one thread
  /// at a time.
  virtual void on_read(std::string_view set, std::int64_t read, std::int64_t samples) {
    (void)set;
    (void)read;
    (void)samples;
  }
  /// Data, model and memory are ready. From here on a request to stop is honoured, and the run is saved.
  virtual void on_ready() {}
  /// The folder is there, and locked.
  virtual void on_begin(const RunStart&) {}
  /// The trainer has ended or thrown; the run is saved next.
  virtual void on_trained() {}
  /// Where several ranks train: this one has nothing more to do with the others (true), and writes what was trained,
  /// which may need long; it has done so, or failed to (false). Must not throw.
  virtual void on_writing(bool writes) { (void)writes; }
  /// All that was trained is on the disk.
  virtual void on_saved() {}
  /// At any time: something that the user may want to know. Must not throw.
  virtual void on_message(std::string_view text) { (void)text; }
  /// At any time: a warning for the user that does not end the run. Must not throw.
  virtual void on_warning(std::string_view text) { (void)text; }
};

}  // namespace bantam::run
