// Bias: how much scratch memory its gradient needs.
#include "bantam/kernels/elementwise/bias.h"

#include "bantam/kernels/common/partial_sums.h"

namespace bantam::kernels {

std::size_t bias_grad_workspace_bytes(std::int64_t rows, std::int64_t channels, DeviceKind target) {
  if (rows <= 0 || channels <= 0) return 0;
  if (target == DeviceKind::cuda)
    return static_cast<std::size_t>(column_parts(rows, channels) * channels) * sizeof(float);
  const std::int64_t parts = sum_parts(rows, channels, target);
  // One part writes its sums where they belong.
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * channels) * sizeof(float);
}

}  // namespace bantam::kernels
