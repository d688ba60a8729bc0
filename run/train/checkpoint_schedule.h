// CheckpointSchedule: when a run is saved on its way.
#pragma once

#include <chrono>
#include <cstdint>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Multiples of updates and epochs, seconds since the last checkpoint, whichever comes first; what comes sooner than
/// `min_interval` after the last one waits. Asked with the position after each launch, so that a checkpoint may come a
/// few updates late.
class CheckpointSchedule {
 public:
  using Clock = std::chrono::steady_clock;

  /// A run that begins, or goes on, with `updates` updates and `epochs` epochs done, at `now`.
  CheckpointSchedule(const CheckpointConfig& config, std::int64_t updates, std::int64_t epochs, Clock::time_point now);

  /// Whether to save where `updates` updates of the whole run and `epochs` epochs, evaluation included, are done.
  bool due(std::int64_t updates, std::int64_t epochs, Clock::time_point now);
  /// A checkpoint of this moment was begun.
  void note_saved(Clock::time_point now);

 private:
  const CheckpointConfig& config_;
  std::int64_t updates_, epochs_;  // when it was last asked
  Clock::time_point saved_;
  bool waiting_ = false;  // one is due since
};

}  // namespace bantam::run
