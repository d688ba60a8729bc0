// Batch normalisation: its scratch memory.
#include "bantam/kernels/contracts/norm/batch_norm.h"

#include "bantam/kernels/tiling/partial_sums.h"

namespace bantam::kernels {

std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape, DType, DeviceKind target) {
  // Two partial results a part and channel (mean and sum of squares forward, the two sums backward), and the two
  // totals; the CPU's backward also keeps two values a channel.
  const std::int64_t parts = target == DeviceKind::cuda ? column_parts(shape.rows, shape.channels) + 1
                                                        : sum_parts(shape.rows, shape.channels, target) + 2;
  return static_cast<std::size_t>(parts * 2 * shape.channels) * sizeof(float);
}

}  // namespace bantam::kernels
