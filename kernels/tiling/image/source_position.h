// What a padded position reads.
#pragma once

#include <cstdint>

#include "bantam/kernels/contracts/input/image_batch.h"

namespace bantam::kernels::cpu {

/// Position in [0, extent) that `position` reads, or -1 where it reads zero.
inline std::int64_t source_position(std::int64_t position, std::int64_t extent, PadMode mode) {
  if (position >= 0 && position < extent) return position;
  if (mode == PadMode::zero) return -1;
  if (extent == 1) return 0;
  const std::int64_t period = 2 * (extent - 1), p = ((position % period) + period) % period;
  return p < extent ? p : period - p;
}

}  // namespace bantam::kernels::cpu
