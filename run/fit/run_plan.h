// The memory of a whole run of `bantam train`, known before it begins: data, training, short batches, evaluation.
#pragma once

#include <cstdint>
#include <memory>

#include "bantam/engine/step/step_placements.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The exact memory of a run in the allocator of its device. On the CPU the data set counts, on a GPU the part of it
/// that lies on the device.
struct RunPlan {
  std::uint64_t peak_bytes = 0;   ///< most bytes in use at one time
  CategoryBytes by_category;      ///< at the peak
  std::uint64_t pool_bytes = 0;   ///< what the allocator must reserve: the peak, with the arena whole and no gaps
  std::uint64_t arena_bytes = 0;  ///< of the planned steps
  std::shared_ptr<StepPlacements> placements;  ///< for TrainingStep::prepare
};

/// Whether there are data, and enough for a batch of this size.
bool has_batches(const RunConfig& config, std::int64_t batch);

/// Rehearses the run on the meta stand-in of its device: two epochs at most, each with the beginning and the end of its
/// batches, since those between need the same memory as the ones before. The configuration has data. Throws ConfigError
/// where they do not fit the model.
RunPlan plan_run(const RunConfig& config);

/// The plan's peak alone, at a third of its cost.
std::uint64_t run_peak(const RunConfig& config);

}  // namespace bantam::run
