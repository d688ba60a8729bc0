// How sums over the positions of each sample are cut into parts, by shapes and target only.
#pragma once

#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/join/channel_scale.h"

namespace bantam::kernels {

/// Parts of each sample's positions; at least 1. On CUDA a block sums one part of up to kPositionColumn channels: parts
/// are added where samples and columns alone would not fill the reference GPU.
inline constexpr std::int64_t kPositionColumn = 256;
inline std::int64_t position_parts(const ChannelScaleShape& shape, DeviceKind target) {
  if (shape.elements() <= 0) return 1;
  if (target != DeviceKind::cuda) return sum_parts(shape.positions, shape.channels, target);
  const std::int64_t columns = (shape.channels + kPositionColumn - 1) / kPositionColumn;
  return std::clamp<std::int64_t>(kColumnBlocks / (shape.samples * columns), 1, (shape.positions + 127) / 128);
}

}  // namespace bantam::kernels
