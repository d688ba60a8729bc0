// When a checkpoint is due.
#include "bantam/run/train/checkpoint_schedule.h"

#include <utility>

namespace bantam::run {

CheckpointSchedule::CheckpointSchedule(const CheckpointConfig& config, std::int64_t updates, std::int64_t epochs,
                                       Clock::time_point now)
    : config_(config), updates_(updates), epochs_(epochs), saved_(now) {}

bool CheckpointSchedule::due(std::int64_t updates, std::int64_t epochs, Clock::time_point now) {
  const std::int64_t updates_before = std::exchange(updates_, updates), epochs_before = std::exchange(epochs_, epochs);
  const auto passed = [](std::int64_t before, std::int64_t after, std::int64_t every) {
    return before / every != after / every;
  };
  for (const Duration& every : config_.every) {
    switch (every.unit) {
      case Duration::Unit::updates:
        waiting_ = waiting_ || passed(updates_before, updates, every.count);
        break;
      case Duration::Unit::epochs:
        waiting_ = waiting_ || passed(epochs_before, epochs, every.count);
        break;
      case Duration::Unit::seconds:
        waiting_ = waiting_ || now - saved_ >= std::chrono::seconds(every.count);
        break;
    }
  }
  return waiting_ && now - saved_ >= std::chrono::seconds(config_.min_seconds);
}

void CheckpointSchedule::note_saved(Clock::time_point now) {
  saved_ = now;
  waiting_ = false;
}

}  // namespace bantam::run
