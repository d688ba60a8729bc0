// StepGrid: the rows of a plan or a bench: every combination of the varied settings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bantam/run/config/step_case.h"

namespace bantam::run {

/// The varied settings; an empty list means the configuration's value.
struct StepGrid {
  std::vector<Precision> precisions;
  /// nullopt: the policy of least work that fits, as where there are bytes to fit and the configuration names no
  /// policy.
  std::vector<std::optional<RecomputeOptions>> recomputes;
  std::vector<std::int64_t> batches;  ///< empty: usual_batch
  std::vector<StepMode> modes;        ///< empty: as `bantam train` runs them
  bool whole_run = false;             ///< choices fit the whole run, where the configuration has data
};

/// The batch size of a grid that names none: the configuration's, which is decided; 16 without data.
std::int64_t usual_batch(const RunConfig& config);

/// One case a row: by precision, then recompute, then batch, then mode. `bytes`: of the pool, to choose a policy for;
/// 0: none. Throws ConfigError where the model does not fit the data, or a policy is to be chosen for no bytes.
std::vector<StepCase> step_cases(const RunConfig& config, const StepGrid& grid, std::uint64_t bytes);

}  // namespace bantam::run
