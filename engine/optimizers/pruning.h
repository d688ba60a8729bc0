// Magnitude pruning: which weights an optimizer keeps at zero, and from when on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// Sparsity over a run: Zhu and Gupta 2017, as TensorFlow Model Optimization has it.
enum class PruneSchedule : std::uint8_t {
  constant,   ///< `final_sparsity` from `begin` on
  polynomial  ///< final + (initial - final)(1 - (t - begin)/(end - begin))^3
};
enum class PrunePattern : std::uint8_t {
  magnitude,   ///< the smallest magnitudes of each tensor are zero
  two_of_four  ///< the two smallest of four weights along the input channels are zero: what sparse tensor cores read
};

/// Magnitude pruning. Update t is the t-th that was done, from 1; skipped ones do not count. Masks change after each
/// update t with begin <= t <= end where t - begin is a multiple of `frequency`, and after update `end`; where `begin`
/// is 0 the first time is after update 1. Between, and after `end`, masked weights are zero after every update.
/// Gradients and moments of masked weights go on as if there were no mask, so that a weight may come back at a change.
struct PruneOptions {
  PruneSchedule schedule = PruneSchedule::polynomial;
  PrunePattern pattern = PrunePattern::magnitude;  ///< two_of_four has no sparsity but its own
  double initial = 0.0, final_sparsity = 0.8;      ///< share of zeros of each tensor, in [0, 1)
  std::int64_t begin = 0, end = 0, frequency = 100;
  /// Names of parameters, where * stands for any text: "*weight*". Those frozen for good are not pruned; those frozen
  /// until an update are, from the first change of masks on.
  std::vector<std::string> match = {"*weight*"};
};

}  // namespace bantam
BANTAM_API_END
