// Scratch memory of the gradients of a factor a channel.
#include "bantam/kernels/elementwise/channel_factor.h"

#include "bantam/kernels/common/partial_sums.h"

namespace bantam::kernels {

std::size_t channel_factor_grad_workspace_bytes(const ChannelFactorShape& s, DeviceKind target) {
  const std::int64_t parts =
      target == DeviceKind::cuda ? column_parts(s.rows, s.channels) : sum_parts(s.rows, s.channels, target);
  return static_cast<std::size_t>((parts + 2) * s.channels) * sizeof(float);
}

}  // namespace bantam::kernels
