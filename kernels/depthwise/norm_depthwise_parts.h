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

/// Floats a channel and part of forward's moments: origin, mean relative to it, squares.
inline constexpr int kMomentFloats = 3;

/// Forward's cut of the positions of y on CUDA: three blocks on a multiprocessor at once.
inline StripParts norm_forward_strips(const DepthwiseConv2dShape& s) {
  return balanced_parts(output_area(s), s.channels, 4, kMomentFloats, 3);
}

/// Sums a channel of backward: of the nine weights, Σ dz and Σ dz·(x - mean) of the norm before.
inline constexpr int kBackwardSums = 11;
/// Channels of a thread in backward, and the columns of its strip (of squares of four, at stride 2): feature maps are
/// 112, 56, 28, 14 and 7 wide.
inline constexpr int kBackwardPack = 2;
inline constexpr int kBackwardColumns = 7;
/// Blocks on a multiprocessor at once: as many as their registers allow.
constexpr int backward_blocks(std::int64_t stride) { return stride == 1 ? 2 : 3; }
/// Rows or columns of backward's first square of four that lie before the image: where `pad` is odd, none.
constexpr int outside_squares(std::int64_t pad) { return pad % 2 == 0 ? 1 : 0; }

/// Whether all columns of backward's strips lie inside the image, and those of y that they read except for the first
/// and the last: no column needs a predicate then.
inline bool has_whole_strips(const DepthwiseConv2dShape& s) {
  return s.in_w % (kBackwardColumns * s.stride_w) == 0 && s.pad_left == 1 && s.out_w() * s.stride_w == s.in_w;
}

/// Backward's cut on CUDA: of x's positions, at stride 2 in squares of four.
inline StripParts norm_backward_strips(const DepthwiseConv2dShape& s) {
  const bool squares = s.stride_h == 2;
  const std::int64_t rows = squares ? (s.in_h + outside_squares(s.pad_top) + 1) / 2 : s.in_h;
  const std::int64_t columns = squares ? (s.in_w + outside_squares(s.pad_left) + 1) / 2 : s.in_w;
  return balanced_parts({s.batch, rows, columns, kBackwardColumns, 1}, s.channels, kBackwardPack, kBackwardSums,
                        backward_blocks(s.stride_h));
}

}  // namespace bantam::kernels
