// How the fused depthwise convolution is cut into parts, and what its workspace holds: by shape only.
#pragma once

#include "bantam/kernels/depthwise/depthwise_parts.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels {

inline BatchNormShape norm_before(const DepthwiseConv2dShape& s) {
  return {.rows = s.batch * s.in_h * s.in_w, .channels = s.channels};
}
inline BatchNormShape norm_after(const DepthwiseConv2dShape& s) {
  return {.rows = s.batch * s.out_h() * s.out_w(), .channels = s.channels};
}

/// Blocks on a multiprocessor at once: as many as their registers allow.
inline constexpr std::int64_t kFusedBlocks = 3;

/// Floats a channel and part of forward's moments: origin, mean relative to it, squares.
inline constexpr int kMomentFloats = 3;

/// Forward's cut of the positions of y on CUDA.
inline StripParts norm_forward_strips(const DepthwiseConv2dShape& s) {
  return strip_parts(output_strips(s), s.channels, 4, kMomentFloats, kFusedBlocks);
}

/// Sums a channel of backward: of the nine weights, Σ dz and Σ dz·(x - mean) of the norm before.
inline constexpr int kBackwardSums = 11;
/// Channels of a thread in backward, and the columns of its strip (of squares of four, at stride 2).
inline constexpr int kBackwardPack = 2;
inline constexpr int kBackwardColumns = 3;

/// Backward's cut on CUDA: of x's positions, at stride 2 in squares of four.
inline StripParts norm_backward_strips(const DepthwiseConv2dShape& s) {
  const std::int64_t rows = s.stride_h == 1 ? s.in_h : (s.in_h + s.pad_top + 1) / 2;
  const std::int64_t columns = s.stride_h == 1 ? s.in_w : (s.in_w + s.pad_left + 1) / 2;
  const StripCut cut = cut_strips(s.batch, rows, columns, kBackwardColumns, s.channels / kBackwardPack);
  return strip_parts(cut, s.channels, kBackwardPack, kBackwardSums, kFusedBlocks);
}

}  // namespace bantam::kernels
