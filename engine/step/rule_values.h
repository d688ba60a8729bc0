// What the kernels of the update know of an optimizer's options.
#pragma once

#include <vector>

#include "bantam/engine/step/optimizer.h"
#include "bantam/kernels/contracts/update/update.h"

namespace bantam {

/// The kernels' kind; muon's is that of the rest.
kernels::OptimizerKind kernel_kind(const OptimizerOptions& options);
/// A group's values as configured.
kernels::UpdateGroup group_values(const OptimizerOptions& options);
/// The table of an arena's spans, in their order: group 0 decays, group 1 does not (biases and normalisation
/// parameters).
std::vector<kernels::ArenaSpan> update_spans(const ParameterArena& parameters);
/// Options of the kind muon: what moves the rest.
OptimizerOptions rest_of(const OptimizerOptions& muon);
/// Throws ConfigError where an option is out of its range, or two do not go together.
void check_options(const OptimizerOptions& options);

}  // namespace bantam
