// How the weight gradient of a depthwise convolution is cut into parts: by shape and target only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/depthwise_conv2d.h"

namespace bantam::kernels {

/// Parts that the rows (batch·out_h) of dy are cut into; at least 1. Each gives partial sums for all of w; parts are
/// added in order.
inline std::int64_t depthwise_grad_weight_parts(const DepthwiseConv2dShape& shape, DeviceKind target) {
  const bool cuda = target == DeviceKind::cuda;
  const std::int64_t rows = shape.batch * shape.out_h();
  const std::int64_t by_work = shape.y_elements() / (cuda ? 8192 : 16384);
  const std::int64_t by_memory = (std::int64_t{1} << 20) / std::max<std::int64_t>(shape.w_elements(), 1);
  return std::clamp<std::int64_t>(std::min({by_work, rows, by_memory}), 1, cuda ? 256 : 64);
}

}  // namespace bantam::kernels
