// Depthwise convolution: its scratch memory, work and traffic.
#include "bantam/kernels/depthwise_conv2d.h"

#include "bantam/kernels/depthwise_parts.h"

namespace bantam::kernels {

std::size_t depthwise_conv2d_grad_weight_workspace_bytes(const DepthwiseConv2dShape& shape, DType, DeviceKind target) {
  const std::int64_t parts = depthwise_grad_weight_parts(shape, target);
  // One part writes its sums where they belong.
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * shape.w_elements()) * sizeof(float);
}

std::int64_t depthwise_conv2d_flops(const DepthwiseConv2dShape& shape) {
  return 2 * shape.y_elements() * shape.kernel_h * shape.kernel_w;
}

std::int64_t depthwise_conv2d_bytes(const DepthwiseConv2dShape& shape, DType dtype) {
  return (shape.x_elements() + shape.w_elements() + shape.y_elements()) * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace bantam::kernels
