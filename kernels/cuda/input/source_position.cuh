// What a padded position reads.
#pragma once

#include "bantam/kernels/contracts/input/image_batch.h"

namespace bantam::kernels::cuda {

/// Position in [0, extent) that `position` reads, or -1 where it reads zero.
__device__ inline int source_position(int position, int extent, PadMode mode) {
  if (position >= 0 && position < extent) return position;
  if (mode == PadMode::zero) return -1;
  if (extent == 1) return 0;
  const int period = 2 * (extent - 1);
  int p = position % period;
  p = p < 0 ? p + period : p;
  return p < extent ? p : period - p;
}

}  // namespace bantam::kernels::cuda
