// Depthwise convolution: its scratch memory, and which kernels compute statistics.
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

#include <algorithm>

#include "bantam/kernels/common/moment_parts.h"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"

namespace bantam::kernels {

bool depthwise_conv2d_writes_statistics(const DepthwiseConv2dShape& shape, DType dtype) {
  const std::int64_t pack = fits_strips(shape) ? 4 : kWideChannels;
  return (dtype == DType::float16 || dtype == DType::bfloat16) && (fits_strips(shape) || fits_wide_strips(shape)) &&
         shape.channels > 0 && shape.channels % pack == 0;
}

std::size_t depthwise_conv2d_statistics_workspace_bytes(const DepthwiseConv2dShape& shape, DType dtype,
                                                        DeviceKind target) {
  const std::size_t pass = batch_norm_workspace_bytes(norm_after(shape), dtype, target);
  if (target != DeviceKind::cuda || !depthwise_conv2d_writes_statistics(shape, dtype)) return pass;
  return std::max(pass, cuda::part_moments_bytes(forward_strips(shape).parts, shape.channels));
}

std::size_t depthwise_conv2d_grad_weight_workspace_bytes(const DepthwiseConv2dShape& shape, DType, DeviceKind target) {
  const std::int64_t parts = depthwise_grad_weight_parts(shape, target);
  // One part writes its sums where they belong.
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * shape.w_elements()) * sizeof(float);
}

}  // namespace bantam::kernels
