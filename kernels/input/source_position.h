// Maps a padded position to the position that it reads, in the same way on the CPU and on CUDA.
#pragma once

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE
#include "bantam/kernels/input/image_batch.h"

namespace bantam::kernels {

/// Position in [0, extent) that `position` reads, or -1 where it reads zero. `Integer` is signed.
template <class Integer>
BANTAM_HOST_DEVICE Integer source_position(Integer position, Integer extent, PadMode mode) {
  if (position >= 0 && position < extent) return position;
  if (mode == PadMode::zero) return -1;
  if (extent == 1) return 0;
  const Integer period = 2 * (extent - 1);
  Integer p = position % period;
  p = p < 0 ? p + period : p;
  return p < extent ? p : period - p;
}

}  // namespace bantam::kernels
