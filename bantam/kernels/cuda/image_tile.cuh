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
        row_words((tile_w * channels + 2) / 2),
        tiles(static_cast<int>(image_tiles(s))),
        x_bytes(s.x_elements() * 2),
        by_tile_w(tile_w),
        by_row_words(row_words),
        by_tiles_across((out_w + kTileEdge - 1) / kTileEdge),
        by_tiles_down((out_h + kTileEdge - 1) / kTileEdge) {}

  int in_h, in_w, channels, out_h, out_w, out_channels;
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;
  int tile_h, tile_w;  ///< pixels of the input that a tile of outputs reads
  int row_words;       ///< 4-byte words of memory that a row of them may lie in
  int tiles;
  std::int64_t x_bytes;
  FastDivide by_tile_w, by_row_words, by_tiles_across, by_tiles_down;

  int tile_bytes() const { return tile_h * tile_w * kPixelBytes; }
  int row_copies_bytes() const { return (tile_h * row_words + 2) * 4; }  // two words are read past the last row
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

/// First value of tile row `row` in x, in elements.
__device__ inline std::int64_t row_start(const ImageConvolution& g, TilePlace place, int row) {
  const int in_row = place.row * g.stride_h - g.pad_top + row, left = place.column * g.stride_w - g.pad_left;
  return ((place.image * g.in_h + in_row) * g.in_w + left) * g.channels;
}

/// Begins the copy of the memory that the rows of a tile lie in, as 4-byte words, to `to` (tile_h, row_words): the
/// first word of a row holds its first value, or the one before. Rows outside the image are left as they are. All
/// threads.
template <class T>
__device__ inline void copy_image_rows(const T* __restrict__ x, const ImageConvolution& g, TilePlace place,
                                       std::uint32_t to) {
  const int top = place.row * g.stride_h - g.pad_top;
  const char* const bytes = reinterpret_cast<const char*>(x);
  for (int i = threadIdx.x; i < g.tile_h * g.row_words; i += kImageThreads) {
    const Divided at = g.by_row_words.divide(static_cast<std::uint32_t>(i));
    const int row = static_cast<int>(at.quotient);
    if (top + row < 0 || top + row >= g.in_h) continue;
    const std::int64_t from = (row_start(g, place, row) & ~std::int64_t{1}) * 2 + at.remainder * 4;
    const std::int64_t inside = from < 0 ? 0 : min(max(g.x_bytes - from, std::int64_t{0}), std::int64_t{4});
    copy_word_async(to + 4 * i, bytes + (inside > 0 ? from : 0), static_cast<int>(inside));
  }
}

/// Spreads copied rows to a tile (tile_h, tile_w, 4), zeros outside the image. With kTwice a second copy, `second`
/// bytes further, lies one pixel lower, so that a pair of pixels begins at a multiple of 16 bytes in one of the two.
template <bool kTwice>
__device__ inline void spread_image_tile(const std::uint32_t* rows, const ImageConvolution& g, TilePlace place,
                                         std::uint64_t* to, int second = 0) {
  const int top = place.row * g.stride_h - g.pad_top, left = place.column * g.stride_w - g.pad_left;
  const int pixels = g.tile_h * g.tile_w;
  const std::uint64_t present = ~std::uint64_t{0} >> (16 * (4 - g.channels));
#pragma unroll 2
  for (int i = threadIdx.x; i < pixels; i += kImageThreads) {
    const Divided at = g.by_tile_w.divide(static_cast<std::uint32_t>(i));
    const int row = static_cast<int>(at.quotient), column = static_cast<int>(at.remainder);
    const bool inside = top + row >= 0 && top + row < g.in_h && left + column >= 0 && left + column < g.in_w;
    const int value = static_cast<int>(row_start(g, place, row) & 1) + column * g.channels;
    const std::uint32_t* word = rows + row * g.row_words + value / 2;
    const int shift = value % 2 * 16;
    const std::uint64_t low = __funnelshift_r(word[0], word[1], shift);
    const std::uint64_t high = __funnelshift_r(word[1], word[2], shift);
    const std::uint64_t pixel = inside ? (low | high << 32) & present : 0;
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
