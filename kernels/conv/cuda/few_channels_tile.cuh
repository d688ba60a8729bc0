// A tile of an image of 8 to 32 channels in shared memory: what 3x3 convolutions with stride 1 read.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/conv/cuda/few_channels.h"
#include "bantam/kernels/conv/cuda/image_tile.cuh"
#include "bantam/kernels/conv/cuda/pixel_fragments.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kFewThreads = 128;
inline constexpr int kFewWarps = kFewThreads / 32;
inline constexpr int kFewColumns = static_cast<int>(kFewChannelsTileWidth);  ///< outputs of a tile's row
inline constexpr int kTaps = 9;

/// A convolution as kernels see it, cut into tiles of `rows` x 16 outputs.
struct FewChannelsConvolution {
  FewChannelsConvolution(const Conv2dShape& s, std::int64_t rows)
      : in_h(static_cast<int>(s.in_h)),
        in_w(static_cast<int>(s.in_w)),
        out_h(static_cast<int>(s.out_h())),
        out_w(static_cast<int>(s.out_w())),
        out_channels(static_cast<int>(s.out_channels)),
        pad_top(static_cast<int>(s.pad_top)),
        pad_left(static_cast<int>(s.pad_left)),
        tile_rows(static_cast<int>(rows)),
        tiles(static_cast<int>(few_channels_tiles(s, rows))),
        by_tiles_across((s.out_w() + kFewChannelsTileWidth - 1) / kFewChannelsTileWidth),
        by_tiles_down((s.out_h() + rows - 1) / rows) {}

  __device__ TilePlace place_of(int tile) const {
    const Divided across = by_tiles_across.divide(static_cast<std::uint32_t>(tile));
    const Divided down = by_tiles_down.divide(across.quotient);
    return {static_cast<std::int64_t>(down.quotient), static_cast<int>(down.remainder) * tile_rows,
            static_cast<int>(across.remainder) * kFewColumns};
  }

  int in_h, in_w, out_h, out_w, out_channels, pad_top, pad_left;
  int tile_rows, tiles;
  FastDivide by_tiles_across, by_tiles_down;
};

/// The input that kRows x 16 outputs read, kChunks x 8 channels a pixel. Pixels are an odd number of chunks apart, so
/// that ldmatrix reads the same chunk of 8 neighbours from all banks.
template <int kChunks, int kRows>
struct PatchTile {
  static constexpr int kPixelStep = (kChunks | 1) * kChunkBytes;
  static constexpr int kWidth = kFewColumns + 2, kHeight = kRows + 2;
  static constexpr int kRowStep = kWidth * kPixelStep;
  static constexpr int kBytes = kHeight * kRowStep;

  /// From a pixel to chunk `index` of its patch: taps in order, chunks within them, as in the rows of w. Absent ones
  /// (from 9·kChunks on) are the first.
  __host__ __device__ static constexpr int offset_of(int index) {
    if (index >= kTaps * kChunks) return 0;
    const int tap = index / kChunks;
    return tap / 3 * kRowStep + tap % 3 * kPixelStep + index % kChunks * kChunkBytes;
  }

  /// Begins the copy of a tile, zeros outside the image. All threads.
  template <class T>
  __device__ static void copy(const T* __restrict__ x, const FewChannelsConvolution& g, TilePlace place,
                              std::uint32_t to) {
    constexpr int kInRow = kWidth * kChunks, kAll = kHeight * kInRow, kChannels = 8 * kChunks;
    const int top = place.row - g.pad_top, left = place.column - g.pad_left;
    const T* const image = x + place.image * (static_cast<std::int64_t>(g.in_h) * g.in_w * kChannels);
#pragma unroll
    for (int k = 0; k < (kAll + kFewThreads - 1) / kFewThreads; ++k) {
      const int i = k * kFewThreads + static_cast<int>(threadIdx.x);
      if ((k + 1) * kFewThreads > kAll && i >= kAll) break;
      const int row = i / kInRow, column = i % kInRow / kChunks, chunk = i % kChunks;
      const bool inside = static_cast<unsigned>(top + row) < static_cast<unsigned>(g.in_h) &&
                          static_cast<unsigned>(left + column) < static_cast<unsigned>(g.in_w);
      const T* from = image + (((top + row) * g.in_w + left + column) * kChannels + 8 * chunk);
      copy_async_part(to + (row * kWidth + column) * kPixelStep + chunk * kChunkBytes, inside ? from : x,
                      inside ? kChunkBytes : 0);
    }
  }
};

/// Calls call(std::integral_constant<int, n>) with the chunks of 8 input channels of a shape.
template <class Call>
void with_chunks(std::int64_t in_channels, Call&& call) {
  switch (in_channels / 8) {
    case 1:
      return call(std::integral_constant<int, 1>{});
    case 2:
      return call(std::integral_constant<int, 2>{});
    case 3:
      return call(std::integral_constant<int, 3>{});
    default:
      return call(std::integral_constant<int, 4>{});
  }
}

}  // namespace bantam::kernels::cuda
