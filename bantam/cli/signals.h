// Ctrl-C and SIGTERM ask the trainer to stop after the update under way; a second one ends the program at once.
#pragma once

#include "bantam/engine/trainer.h"

namespace bantam::cli {

/// Handlers for a scope. One at a time in a process.
class StopOnSignal {
 public:
  explicit StopOnSignal(Trainer& trainer);
  /// Puts the former handlers back.
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  /// SIGINT or SIGTERM once one has come, else 0.
  int signal() const;
};

}  // namespace bantam::cli
