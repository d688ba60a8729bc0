// LAMB on CUDA: Adam's moments with the norms of each chunk, then the weights.
#pragma once

#include "bantam/kernels/update/update.h"

namespace bantam::kernels::cuda {

/// ApplyUpdate of the kind lamb.
void lamb_update(const Exec& exec, const UpdateArena& arena, const UpdateBuffers& buffers,
                 const UpdateControl* control);

}  // namespace bantam::kernels::cuda
