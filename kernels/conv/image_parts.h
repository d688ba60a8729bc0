// Convolutions of images (at most 4 input channels) by CUDA kernels of our own: which, and how they are cut into tiles
// and parts: by shape and type only, known also where there is no CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels::cuda {

/// A thread block's tile of outputs: 16 x 16 pixels of one image, all read from one tile of the input.
inline constexpr std::int64_t kImageTile = 16;
inline constexpr int kMostTapPairs = 28;  ///< of neighbouring taps: 7 rows of 4

/// Tiles of a whole batch.
inline std::int64_t image_tiles(const Conv2dShape& s) {
  return s.batch * ((s.out_h() + kImageTile - 1) / kImageTile) * ((s.out_w() + kImageTile - 1) / kImageTile);
}

/// Whether forward and grad_weight run our kernels (in code made for compute capability 8.0 and later) instead of a
/// library's: float16 or bfloat16, at most 4 input channels, output channels in eights, kernels up to 7 x 7 with stride
/// 1 or 2. Gradients of images are the library's, where anyone asks for them.
inline bool is_image_convolution(const Conv2dShape& s, DType dtype) {
  const auto small_stride = [](std::int64_t stride) { return stride == 1 || stride == 2; };
  return is_half(dtype) && s.groups == 1 && s.dilation_h == 1 && s.dilation_w == 1 && s.in_channels <= 4 &&
         s.out_channels % 8 == 0 && s.kernel_h <= 7 && s.kernel_w <= 7 && small_stride(s.stride_h) &&
         small_stride(s.stride_w) && image_tiles(s) <= 0x7fffffff;
}

/// Parts that grad_weight's sum over the tiles is cut into; each writes one partial dw, added in order. About three
/// blocks for each multiprocessor of a large GPU, in at most 16 MiB.
inline std::int64_t image_grad_weight_parts(const Conv2dShape& s) {
  constexpr std::int64_t kMost = 3 * kReferenceMultiprocessors, kMostFloats = std::int64_t{4} << 20;
  return std::max<std::int64_t>(
      1, std::min({kMost, image_tiles(s), kMostFloats / std::max<std::int64_t>(1, s.w_elements())}));
}

/// Scratch bytes of grad_weight: the partial sums.
inline std::int64_t image_grad_weight_bytes(const Conv2dShape& s) {
  return image_grad_weight_parts(s) * s.w_elements() * static_cast<std::int64_t>(sizeof(float));
}

/// Parts of the moments that forward can compute: one a thread block, three blocks for each multiprocessor.
inline std::int64_t image_parts(const Conv2dShape& s) {
  return std::min(3 * kReferenceMultiprocessors, image_tiles(s));
}

}  // namespace bantam::kernels::cuda
