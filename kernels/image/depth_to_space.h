// Channels to pixels and back, NHWC: each block² channels become a block of pixels.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// The deep image is (batch, h, w, channels·block²), the wide one (batch, h·block, w·block, channels).
struct DepthToSpaceShape {
  std::int64_t batch = 0, h = 0, w = 0, channels = 0;  ///< channels of the wide image
  std::int64_t block = 1;
  /// Orders the deep image's channel axis: false: (block row, block column, channel). true: (channel, block row, block
  /// column).
  bool channel_first = false;

  std::int64_t elements() const { return batch * h * w * channels * block * block; }
  bool operator==(const DepthToSpaceShape&) const = default;
};

/// wide[n, i·block + a, j·block + b, c] = deep[n, i, j, (a, b, c) or (c, a, b)]. Values are copied. Nothing aliases.
/// Asynchronous on CUDA; deterministic.
using DepthToSpace = void(const Exec&, const DepthToSpaceShape&, DType dtype, const void* deep, void* wide);
/// The inverse, which is the gradient.
using SpaceToDepth = void(const Exec&, const DepthToSpaceShape&, DType dtype, const void* wide, void* deep);

BANTAM_DECLARE_KERNEL(DepthToSpace, depth_to_space);
BANTAM_DECLARE_KERNEL(SpaceToDepth, space_to_depth);

}  // namespace bantam::kernels
