// LAMB on the CPU: Adam's moments with the norms of each chunk, then the weights.
#pragma once

#include "bantam/kernels/update/update.h"

namespace bantam::kernels::cpu {

/// ApplyUpdate of the kind lamb, of an update that is not skipped.
void lamb_update(const Exec& exec, const UpdateArena& arena, const UpdateControl& control);

}  // namespace bantam::kernels::cpu
