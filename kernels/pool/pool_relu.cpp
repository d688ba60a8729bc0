// Workspace of the gradient of max pooling of a relu.
#include "bantam/kernels/pool/pool_relu.h"

#include "bantam/kernels/pool/pool_relu_parts.h"

namespace bantam::kernels {

std::size_t max_pool2d_relu_grad_workspace_bytes(const Pool2dShape& shape, DType dtype, DeviceKind target) {
  const PoolReluWorkspace parts = PoolReluWorkspace::of(shape, dtype, target);
  return parts.masked_bytes + parts.sums_bytes;
}

}  // namespace bantam::kernels
