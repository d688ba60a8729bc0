// Batch normalisation: its scratch memory.
#include "bantam/kernels/norm/batch_norm.h"

#include "bantam/kernels/common/partial_sums.h"

namespace bantam::kernels {

std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape, DType, DeviceKind target) {
  // Two partial results a part and channel (mean and sum of squares forward, the two sums backward), and the two
  // totals; the CPU's backward also keeps two values a channel.
  const std::int64_t parts = target == DeviceKind::cuda ? column_parts(shape.rows, shape.channels) + 1
                                                        : sum_parts(shape.rows, shape.channels, target) + 2;
  return static_cast<std::size_t>(parts * 2 * shape.channels) * sizeof(float);
}

std::size_t batch_norm_inference_workspace_bytes(const BatchNormShape& shape, const NormGradients& to,
                                                 DeviceKind target) {
  if (to.dscale == nullptr && to.dshift == nullptr) return 0;
  // As above, and on the CPU inv_std, which the GPU makes as it reads the variance.
  const std::int64_t inv_std = target == DeviceKind::cuda ? 0 : shape.channels;
  return batch_norm_workspace_bytes(shape, DType::float32, target) + static_cast<std::size_t>(inv_std) * sizeof(float);
}

}  // namespace bantam::kernels
