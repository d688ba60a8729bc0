// The exponential moving average of weights and running statistics, moved after an update, and its exchange with them
// for an evaluation. The rule is timm's ModelEmaV3.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels {

struct AverageRule {
  double decay = 0.999;   ///< share of the average that an averaging keeps, in [0, 1)
  bool warms_up = false;  ///< at averaging k: min(decay, 1 - k^(-2/3))
  std::int64_t every = 1;
};

/// Arrays of float32; no two overlap.
struct AverageArena {
  std::int64_t elements = 0;  ///< of weights and average; a multiple of kWeightBlockSize
  const float* weights = nullptr;
  float* average = nullptr;
  std::int64_t buffer_elements = 0;  ///< of the running statistics and their average; a multiple of kWeightBlockSize
  const float* buffers = nullptr;
  float* buffer_average = nullptr;
};

/// Follows `apply_update`. With t = control->updates, unless found_nonfinite, where t is a multiple of `every`:
/// a = a + (1 - d)(w - a) for each weight and each running statistic, in float32, where d is the rule's decay at
/// averaging k = t/every; 0 at the first one, which copies. Asynchronous on CUDA; deterministic.
using MoveAverage = void(const Exec&, const AverageRule&, const AverageArena&, const UpdateControl* control);

/// Exchanges a[i] and b[i] for i < elements (a multiple of kWeightBlockSize): bits, so that a second call undoes the
/// first. Asynchronous on CUDA.
using SwapValues = void(const Exec&, std::int64_t elements, float* a, float* b);

BANTAM_DECLARE_KERNEL(MoveAverage, move_average);
BANTAM_DECLARE_KERNEL(SwapValues, swap_values);

}  // namespace bantam::kernels
