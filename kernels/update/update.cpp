// Workspace of the update, and the layout of what host and device share.
#include "bantam/kernels/update/update.h"

#include "bantam/kernels/update/update_rules.h"

namespace bantam::kernels {

static_assert(sizeof(UpdateGroup) == 24 && sizeof(ArenaSpan) == 8 && sizeof(UpdateControl) == 56 &&
              sizeof(UpdateRow) == 16);

std::size_t begin_update_workspace_bytes(std::int64_t weight_blocks, DeviceKind target) {
  const std::int64_t partials = target == DeviceKind::cuda ? gradient_sum_blocks(weight_blocks) + kMostSumBlocks
                                                           : gradient_sum_parts(weight_blocks);
  return static_cast<std::size_t>(partials) * sizeof(double);
}

}  // namespace bantam::kernels
