// How group norms are cut into parts, for planning and for kernels alike: by shapes and target only.
#pragma once

#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/norm/group_norm.h"

namespace bantam::kernels {

/// Parts that the positions of each sample are cut into where a group has several positions.
inline std::int64_t position_parts(const GroupNormShape& s, DeviceKind target) {
  if (target != DeviceKind::cuda) return sum_parts(s.positions, s.channels, target);
  const std::int64_t columns = (s.channels + kColumnChannels - 1) / kColumnChannels;
  const std::int64_t by_blocks = 2 * kColumnBlocks / std::max<std::int64_t>(columns * s.samples, 1);
  return std::clamp<std::int64_t>(std::min(by_blocks, (s.positions + 127) / 128), 1, kColumnBlocks);
}

/// Most values of a group that the CUDA kernels keep in the registers of one block (kernels/norm/cuda/row_norm.cuh).
inline constexpr std::int64_t kMostRowValues = 8192;

/// Whether a sample's group is a row of memory that one block of a CUDA kernel reads at once.
inline bool is_row_norm(const GroupNormShape& s) {
  constexpr std::int64_t kMostGroups = 65535;  // of a grid's second axis
  return s.positions == 1 && s.group_channels() <= kMostRowValues && s.groups <= kMostGroups;
}

/// Parts of the samples, at most, in which the CUDA kernels sum dscale and dshift of rows.
inline std::int64_t most_row_parts(const GroupNormShape& s) {
  return std::clamp<std::int64_t>(std::min(kColumnBlocks / s.groups, s.samples), 1, kColumnBlocks);
}

}  // namespace bantam::kernels
