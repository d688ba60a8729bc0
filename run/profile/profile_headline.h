// A memory profile in one sentence: the largest category of the peak, and the planned changes that would lower it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/memory/allocator/accounting.h"
#include "bantam/run/config/step_case.h"

namespace bantam::run {

/// One change of a step, planned.
struct PlannedChange {
  std::string words;             ///< "recompute: cheap", "a batch of 16"
  std::uint64_t peak_bytes = 0;  ///< with it
  double extra_work = 0;         ///< predicted share of a step's time, of recompute
  bool is_recompute = false;
  bool estimate = false;  ///< of a device whose rates are an estimate
};

/// `recompute: cheap` and `all`, where the step has another policy, and half the batch, where it has two samples:
/// each alone, planned on the meta device.
std::vector<PlannedChange> plan_changes(const RunConfig& config, const StepCase& row);

/// "45 % of the peak of 2.10 GiB are activations; recompute: cheap would need 1.20 GiB (+4 % time, predicted)." A
/// policy of recompute is named where it saves 2 % of the peak; other changes where none does.
std::string profile_headline(std::uint64_t peak_bytes, const CategoryBytes& at_peak,
                             const std::vector<PlannedChange>& changes);

}  // namespace bantam::run
