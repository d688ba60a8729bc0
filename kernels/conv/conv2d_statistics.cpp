// Convolution with statistics: its scratch memory.
#include "bantam/kernels/conv/conv2d_statistics.h"

#include <algorithm>

#include "bantam/kernels/conv/conv2d_statistics_parts.h"

namespace bantam::kernels {

bool conv2d_writes_statistics(const Conv2dShape& shape, DType dtype) {
  return cuda::is_image_convolution(shape, dtype) || pointwise_with_moments(shape, dtype).rows > 0 ||
         warpgroup_product_of(shape, dtype).rows > 0 || conv3x3_with_moments(shape, dtype).batch > 0;
}

std::size_t conv2d_statistics_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target) {
  const std::size_t apart = std::max(conv2d_workspace_bytes(shape, dtype, Conv2dPass::forward, target),
                                     batch_norm_workspace_bytes(output_rows(shape), dtype, target));
  if (target != DeviceKind::cuda) return apart;
  return std::max({apart, image_moments_bytes(shape, dtype), pointwise_moments_bytes(shape, dtype),
                   warpgroup_moments_bytes(shape, dtype), conv3x3_moments_bytes(shape, dtype)});
}

}  // namespace bantam::kernels
