// Changes that a reader could make for a faster step: each alone, predicted, and where asked for, measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/run/config/step_case.h"

namespace bantam::run {

/// One change of a step.
struct StepChange {
  std::string words;  ///< "precision: mixed_float16", "a batch of 64"
  StepCase step;      ///< with it
  bool fusion = true;
  bool estimate = false;                 ///< predicted for a device whose rates are an estimate
  double predicted_share = 1;            ///< of the time of a sample, with the change over without
  std::optional<double> measured_share;  ///< the same, measured; nullopt: it was not, or does not fit
  std::uint64_t peak_bytes = 0;          ///< planned, with it
  bool fits = true;                      ///< into the budget or limit (bytes_to_fit), where there is one
  double share() const { return measured_share.value_or(predicted_share); }
};

/// Those that apply to the step: 16-bit types on a GPU, no recompute, fusions, captured updates, twice the batch (where
/// that is predicted to need less time a sample). Predictions are ratios of the cost model's seconds; a change of mode,
/// of which the model knows nothing, is predicted to save `gap_share` of the step.
std::vector<StepChange> step_changes(const RunConfig& config, const StepCase& step, double gap_share);

/// Measures the step and each change for about `seconds` (measure_step), and notes the ratio.
void try_changes(const RunConfig& config, const StepCase& step, int threads, double seconds,
                 std::vector<StepChange>& changes);

}  // namespace bantam::run
