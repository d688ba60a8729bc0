// Depthwise convolution: its scratch memory.
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

#include "bantam/kernels/depthwise/depthwise_parts.h"

namespace bantam::kernels {

std::size_t depthwise_conv2d_grad_weight_workspace_bytes(const DepthwiseConv2dShape& shape, DType, DeviceKind target) {
  const std::int64_t parts = depthwise_grad_weight_parts(shape, target);
  // One part writes its sums where they belong.
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * shape.w_elements()) * sizeof(float);
}

}  // namespace bantam::kernels
