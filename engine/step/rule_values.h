// What the kernels of the update know of an optimizer's options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/step/optimizer.h"
#include "bantam/kernels/update/update.h"

namespace bantam {

/// The kernels' kind; muon's is that of the rest.
kernels::OptimizerKind kernel_kind(const OptimizerOptions& options);
/// Whether the first value of a kind's groups (UpdateGroup::beta1) is its momentum, and not its beta1.
bool has_momentum(OptimizerKind kind);
/// A group's values as configured.
kernels::UpdateGroup group_values(const OptimizerOptions& options);
/// What of the options may change from update to update, and the way back.
UpdateValues update_values(const OptimizerOptions& options);
void assign_values(OptimizerOptions& options, const UpdateValues& values);
/// Options of the kind muon: what moves the rest.
OptimizerOptions rest_of(const OptimizerOptions& muon);
/// The largest singular value after any of Muon's steps, where those of up to `first` come in; infinite where they grow
/// beyond all bounds.
double largest_singular_value(const MuonOptions& options, double first);
/// Throws ConfigError where Muon's own options are out of their ranges, or would make singular values too large.
void check_muon(const MuonOptions& options);
/// What of an optimizer's options a precision cannot do.
struct PrecisionConflict {
  std::string_view key;  ///< in the section train: "ema", "prune", "optimizer"
  std::string text;      ///< what, and what was expected
};
/// What reads or writes float32 weights besides the built-in rules, where the precision keeps none.
std::optional<PrecisionConflict> conflict_with(const OptimizerOptions& options, Precision precision);
/// Throws ConfigError where an option is out of its range, or two do not go together.
void check_options(const OptimizerOptions& options);

}  // namespace bantam
