// Where the statistics of a tensor go, for kernels that take them of what they write.
#pragma once

#include "bantam/kernels/contracts/norm/batch_norm.h"

namespace bantam::kernels {

/// What a batch norm over the tensor's channels wants to know of it, as batch_norm_forward_training gives it.
struct StatisticsOutput {
  float epsilon = 1e-3f;
  RunningUpdate update;
  float* running_mean = nullptr;  ///< (channels), moved; may be null, both
  float* running_variance = nullptr;
  float* mean =
      nullptr;  ///< (channels); null: no statistics are wanted, only the bits of the tensor that come with them
  float* inv_std = nullptr;  ///< (channels)

  bool wanted() const { return mean != nullptr; }
};

}  // namespace bantam::kernels
