// 3x3 convolutions of 8 to 32 input channels by CUDA kernels of our own: which, and how they are cut into tiles and
// parts: by shape and type only, known also where there is no CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels::cuda {

/// A thread block's tile of outputs has 16 columns, and these rows in forward and in grad_weight.
inline constexpr std::int64_t kFewChannelsTileWidth = 16;
inline constexpr std::int64_t kFewChannelsForwardRows = 16, kFewChannelsGradRows = 8;

/// Tiles of `rows` x 16 outputs that one image has.
inline std::int64_t few_channels_image_tiles(const Conv2dShape& s, std::int64_t rows) {
  const std::int64_t across = (s.out_w() + kFewChannelsTileWidth - 1) / kFewChannelsTileWidth;
  return (s.out_h() + rows - 1) / rows * across;
}
/// Tiles of a whole batch.
inline std::int64_t few_channels_tiles(const Conv2dShape& s, std::int64_t rows) {
  return s.batch * few_channels_image_tiles(s, rows);
}

/// Whether our kernels compute a convolution (in code made for compute capability 8.0 and later): float16 or bfloat16,
/// 8, 16, 24 or 32 input channels, output channels in eights, a 3x3 kernel with stride 1 and any padding. Indices
/// within an image are 32 bits wide.
inline bool has_few_channels_kernel(const Conv2dShape& s, DType dtype) {
  constexpr std::int64_t kMost = 0x7fffffff;
  return is_half(dtype) && s.groups == 1 && s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 && s.stride_w == 1 &&
         s.dilation_h == 1 && s.dilation_w == 1 && s.in_channels >= 8 && s.in_channels <= 32 &&
         s.in_channels % 8 == 0 && s.out_channels >= 8 && s.out_channels % 8 == 0 && s.y_elements() > 0 &&
         few_channels_tiles(s, kFewChannelsGradRows) < kMost - kReferenceMultiprocessors * 8 &&
         (s.in_h + 32) * (s.in_w + 32) * s.in_channels <= kMost &&
         (s.out_h() + 32) * (s.out_w() + 32) * s.out_channels <= kMost;
}

/// Whether they read little more than once what they compute from, so that they are bound by bytes: images are large,
/// so that tiles hold outputs for at least three quarters, and x is read at most twice, once for 64 output channels.
inline bool suits_few_channels_kernel(const Conv2dShape& s, DType dtype) {
  const std::int64_t tiles = few_channels_image_tiles(s, kFewChannelsForwardRows);
  const std::int64_t places = tiles * kFewChannelsForwardRows * kFewChannelsTileWidth;
  return has_few_channels_kernel(s, dtype) && s.out_channels <= 128 && s.out_h() * s.out_w() * 4 >= places * 3;
}

/// Whether they run in place of a library's: where there also are tiles for about four on each multiprocessor of a
/// large GPU. A library's GEMM of such convolutions has few terms in each of its sums. An estimate from 24 to 64
/// channels over 31x31, 1,536 images.
inline bool prefers_few_channels_kernel(const Conv2dShape& s, DType dtype) {
  return suits_few_channels_kernel(s, dtype) &&
         few_channels_tiles(s, kFewChannelsForwardRows) >= 4 * kReferenceMultiprocessors;
}

/// Parts that grad_weight's sum over the tiles is cut into; each writes one partial dw, added in order: one, two or
/// three blocks for each multiprocessor of a large GPU, the most whose partial sums need at most 32 MiB.
inline std::int64_t few_channels_grad_weight_parts(const Conv2dShape& s) {
  constexpr std::int64_t kMostFloats = std::int64_t{8} << 20;
  const std::int64_t whole = kReferenceMultiprocessors * std::max<std::int64_t>(1, s.w_elements());
  const std::int64_t parts = kReferenceMultiprocessors * std::clamp<std::int64_t>(kMostFloats / whole, 1, 3);
  return std::max<std::int64_t>(1, std::min(parts, few_channels_tiles(s, kFewChannelsGradRows)));
}

/// Scratch bytes of grad_weight: the partial sums.
inline std::int64_t few_channels_grad_weight_bytes(const Conv2dShape& s) {
  return few_channels_grad_weight_parts(s) * s.w_elements() * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace bantam::kernels::cuda
