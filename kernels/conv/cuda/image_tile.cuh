// A tile of an image of up to 4 channels in shared memory, 4 channels a pixel: what convolutions of images read.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/conv/cuda/small_channels.h"

namespace bantam::kernels::cuda {

inline constexpr int kImageThreads = 128;
inline constexpr int kImageWarps = kImageThreads / 32;
inline constexpr int kTileEdge = static_cast<int>(kImageTile);
inline constexpr int kPixelBytes = 8;  // four channels, absent ones zero

/// An image convolution as kernels see it. Taps are read in pairs, neighbours in a kernel row: 16 bytes, which must
/// begin at a multiple of 16. Where the stride is odd, half of the pairs do not, and are read from a second copy of the
/// tile that lies one pixel lower.
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
        second(stride_w % 2 == 0 ? 0 : (tile_h * tile_w * kPixelBytes + 127) / 128 * 128 + 64),
        row_chunks((tile_w * channels * 2 + 14 + 15) / 16),
        tiles(static_cast<int>(image_tiles(s))),
        x_bytes(s.x_elements() * 2),
        by_tile_w(tile_w),
        by_row_chunks(row_chunks),
        by_tiles_across((out_w + kTileEdge - 1) / kTileEdge),
        by_tiles_down((out_h + kTileEdge - 1) / kTileEdge) {}

  int in_h, in_w, channels, out_h, out_w, out_channels;
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;
  int tile_h, tile_w;  ///< pixels of the input that a tile of outputs reads
  int second;          ///< byte offset of the second copy, half a row of banks past a multiple of all; 0: there is none
  int row_chunks;      ///< chunks of 16 bytes of memory that a row of the tile may lie in
  int tiles;
  std::int64_t x_bytes;
  FastDivide by_tile_w, by_row_chunks, by_tiles_across, by_tiles_down;

  __host__ __device__ int tile_bytes() const { return second + (tile_h * tile_w * kPixelBytes + 15) / 16 * 16; }
  int row_bytes() const { return (tile_h * row_chunks + 1) * 16; }  // a word past the last row may be read
  __host__ __device__ int pairs() const { return kernel_h * ((kernel_w + 1) / 2); }
};

/// A pair of neighbouring taps.
struct TapPair {
  __device__ TapPair(const ImageConvolution& g, int index) {
    const int in_row = (g.kernel_w + 1) / 2;
    row = index / in_row;
    column = index % in_row * 2;
  }
  /// From a pixel of the tile to this pair's first, in bytes.
  __device__ int offset(const ImageConvolution& g) const { return (row * g.tile_w + column) * kPixelBytes; }
  int row, column;
};

/// Byte offset in the tile of what output pixel `column` of its first row reads first, in the copy that is aligned.
__device__ inline int pixel_offset(const ImageConvolution& g, int column) {
  const int pixel = column * g.stride_w;
  return pixel % 2 == 0 ? pixel * kPixelBytes : g.second + (pixel - 1) * kPixelBytes;
}

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

/// The first value of a tile's first row, as an index in x (below 0 where the tile begins above the first image), and
/// the values from row to row.
struct RowValues {
  __device__ RowValues(const ImageConvolution& g, TilePlace place)
      : first(((place.image * g.in_h + place.row * g.stride_h - g.pad_top) * g.in_w + place.column * g.stride_w -
               g.pad_left) *
              g.channels),
        step(g.in_w * g.channels) {}
  std::int64_t first;
  int step;
};

/// Begins the copy of the memory that the rows of a tile lie in to `to` (tile_h, row_chunks of 16 bytes): a row's first
/// value is among the first 8 there. Rows outside the image are left as they are. All threads.
template <class T>
__device__ inline void copy_image_rows(const T* __restrict__ x, const ImageConvolution& g, TilePlace place,
                                       std::uint32_t to) {
  const int top = place.row * g.stride_h - g.pad_top;
  const RowValues values(g, place);
  const char* const bytes = reinterpret_cast<const char*>(x);
  for (int i = threadIdx.x; i < g.tile_h * g.row_chunks; i += kImageThreads) {
    const Divided at = g.by_row_chunks.divide(static_cast<std::uint32_t>(i));
    const int row = static_cast<int>(at.quotient);
    if (static_cast<unsigned>(top + row) >= static_cast<unsigned>(g.in_h)) continue;
    const std::int64_t value = values.first + row * static_cast<std::int64_t>(values.step);
    const std::int64_t from = (value & ~std::int64_t{7}) * 2 + at.remainder * 16;
    const bool begun = from >= 0 && from < g.x_bytes;  // what lies outside x holds no pixel of the image
    const int inside = begun ? static_cast<int>(min(g.x_bytes - from, std::int64_t{16})) : 0;
    copy_async_part(to + 16 * i, bytes + (begun ? from : 0), inside);
  }
}

/// Spreads copied rows to a tile (tile_h, tile_w, 4), zeros outside the image, and to its second copy. All threads.
__device__ inline void spread_image_tile(const std::uint32_t* rows, const ImageConvolution& g, TilePlace place,
                                         std::uint64_t* to) {
  const int top = place.row * g.stride_h - g.pad_top, left = place.column * g.stride_w - g.pad_left;
  const RowValues values(g, place);
  const int first = static_cast<int>(values.first & 7), pixels = g.tile_h * g.tile_w;
  const std::uint64_t present = ~std::uint64_t{0} >> (16 * (4 - g.channels));
  const Divided begin = g.by_tile_w.divide(threadIdx.x), step = g.by_tile_w.divide(kImageThreads);
  int row = static_cast<int>(begin.quotient), column = static_cast<int>(begin.remainder);
#pragma unroll 4
  for (int i = threadIdx.x; i < pixels; i += kImageThreads) {
    const bool inside = static_cast<unsigned>(top + row) < static_cast<unsigned>(g.in_h) &&
                        static_cast<unsigned>(left + column) < static_cast<unsigned>(g.in_w);
    const int value = ((first + row * values.step) & 7) + column * g.channels;
    const std::uint32_t* word = rows + row * g.row_chunks * 4 + value / 2;
    const int shift = value % 2 * 16;
    const std::uint64_t low = __funnelshift_r(word[0], word[1], shift);
    const std::uint64_t high = __funnelshift_r(word[1], g.channels == 4 ? word[2] : 0, shift);
    const std::uint64_t pixel = inside ? (low | high << 32) & present : 0;
    to[i] = pixel;
    if (g.second > 0 && i > 0) to[i - 1 + g.second / kPixelBytes] = pixel;
    row += static_cast<int>(step.quotient);
    column += static_cast<int>(step.remainder);
    if (column >= g.tile_w) {
      column -= g.tile_w;
      ++row;
    }
  }
}

/// Whether the code that the device runs has the instructions of warp_mma.cuh that have no stand-in: made for 8.0 or
/// later.
inline bool has_warp_mma(const Exec& exec) { return Libraries::of(exec).code_architecture() >= 800; }

}  // namespace bantam::kernels::cuda
