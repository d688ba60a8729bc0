// A tile of an image of up to 4 channels in shared memory, 4 channels a pixel: what convolutions of images read.
#pragma once

#include <cstdint>

#include "bantam/kernels/cuda/check.h"
#include "bantam/kernels/cuda/small_channels.h"
#include "bantam/kernels/cuda/warp_mma.cuh"
#include "bantam/kernels/fast_divide.h"

namespace bantam::kernels::cuda {

inline constexpr int kImageThreads = 128;
inline constexpr int kImageWarps = kImageThreads / 32;
inline constexpr int kTileEdge = static_cast<int>(kImageTile);
inline constexpr int kPixelBytes = 8;  // four channels, absent ones zero

/// An image convolution as kernels see it.
struct ImageConvolution {
  explicit ImageConvolution(const Conv2dShape& s)
      : in_h(static_cast<int>(s.in_h)),
        in_w(static_cast<int>(s.in_w)),
        channels(static_cast<int>(s.in_channels)),
        out_h(static_cast<int>(s.out_h())),
        out_w(static_cast<int>(s.out_w())),
        out_channels(static_cast<int>(s.out_channels)),
        kernel_h(static_cast<int>(s.kernel_h)),
        kernel_w(static_cast<int>(s.kernel_w)),
        stride_h(static_cast<int>(s.stride_h)),
        stride_w(static_cast<int>(s.stride_w)),
        pad_top(static_cast<int>(s.pad_top)),
        pad_left(static_cast<int>(s.pad_left)),
        tile_h((kTileEdge - 1) * stride_h + kernel_h),
        tile_w(((kTileEdge - 1) * stride_w + kernel_w + 2) / 2 * 2),  // even, with room for a tap past the last
        tiles(static_cast<int>(image_tiles(s))),
        by_tile_w(tile_w),
        by_tiles_across((out_w + kTileEdge - 1) / kTileEdge),
        by_tiles_down((out_h + kTileEdge - 1) / kTileEdge) {}

  int in_h, in_w, channels, out_h, out_w, out_channels;
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;
  int tile_h, tile_w;  ///< pixels of the input that a tile of outputs reads
  int tiles;
  FastDivide by_tile_w, by_tiles_across, by_tiles_down;

  int tile_bytes() const { return tile_h * tile_w * kPixelBytes; }
};

/// Where a tile lies.
struct TilePlace {
  std::int64_t image;
  int row, column;  ///< of its first output
};

__device__ inline TilePlace place_of(const ImageConvolution& g, int tile) {
  const Divided across = g.by_tiles_across.divide(static_cast<std::uint32_t>(tile));
  const Divided down = g.by_tiles_down.divide(across.quotient);
  return {static_cast<std::int64_t>(down.quotient), static_cast<int>(down.remainder) * kTileEdge,
          static_cast<int>(across.remainder) * kTileEdge};
}

/// Copies the input of the tile at `place` to shared memory (tile_h, tile_w, 4), zeros outside the image. With kTwice a
/// second copy, `second` bytes further, lies one pixel lower, so that a pair of pixels begins at a multiple of 16 bytes
/// in one of the two. All threads of the block.
template <bool kTwice, class T>
__device__ inline void load_image_tile(const T* __restrict__ x, const ImageConvolution& g, TilePlace place,
                                       std::uint64_t* to, int second = 0) {
  const auto* words = reinterpret_cast<const unsigned short*>(x);
  const int top = place.row * g.stride_h - g.pad_top, left = place.column * g.stride_w - g.pad_left;
  const int pixels = g.tile_h * g.tile_w;
#pragma unroll 4
  for (int i = threadIdx.x; i < pixels; i += kImageThreads) {
    const Divided at = g.by_tile_w.divide(static_cast<std::uint32_t>(i));
    const int row = top + static_cast<int>(at.quotient), column = left + static_cast<int>(at.remainder);
    std::uint64_t pixel = 0;
    if (row >= 0 && row < g.in_h && column >= 0 && column < g.in_w) {
      const auto* from = words + ((place.image * g.in_h + row) * g.in_w + column) * g.channels;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (c < g.channels) pixel |= static_cast<std::uint64_t>(from[c]) << (16 * c);
      }
    }
    to[i] = pixel;
    if constexpr (kTwice) {
      if (i > 0) to[i - 1 + second / kPixelBytes] = pixel;
    }
  }
}

/// Whether the current device has the instructions of warp_mma.cuh.
inline bool has_warp_mma(const Exec& exec) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, exec.device.index),
             "cudaDeviceGetAttribute");
  return major >= 8;
}

}  // namespace bantam::kernels::cuda
