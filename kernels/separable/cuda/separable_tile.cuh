// A tile of the separable block's backward pass: what it covers, and its loads into shared memory.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/separable/separable_backward_tiles.h"

namespace bantam::kernels::cuda {

/// Columns assigned to threads: `runs` a row, of `length` columns.
struct RowRuns {
  int runs = 1, length = 1;
  /// For `rows` rows of `width` columns and `walkers` threads: the fewest steps, two of which begin each run.
  static RowRuns of(std::int64_t rows, std::int64_t width, std::int64_t walkers) {
    RowRuns best;
    std::int64_t least = 0;
    for (std::int64_t runs = 1; runs <= 16; ++runs) {
      const std::int64_t length = (width + runs - 1) / runs;
      const std::int64_t steps = (rows * runs + walkers - 1) / walkers * (length + 1);
      if (runs == 1 || steps < least) best = {static_cast<int>(runs), static_cast<int>(length)}, least = steps;
    }
    return best;
  }
};

/// All that the general kernel knows of the shape.
struct TileGeometry {
  int in_h, in_w, conv_h, conv_w, out_h, out_w, in_channels, out_channels, pad_top, pad_left, pool;
  int band_rows, bands, batch, images_each;
  bool masked;     ///< there are codes
  bool sparse_dz;  ///< loads skip places of dz or of the weights that must be 0
  int dz_stride;   ///< elements
  int weights_at, codes_at, zeros_at, region_at, region_bytes, d_mid_at;  ///< bytes from the start of shared memory
  RowRuns mid_runs, dx_runs;
  FastDivide by_conv_w, by_out_w, by_chunks;  ///< chunks: 8 output channels
};

/// The rows that a block covers, the same for each of its images. dz rows reach past those it owns by what dx reads.
struct TileBand {
  int in_begin, in_end, own_begin, own_end, dz_begin, dz_end, x_begin, x_end;
  int cell_begin, cells;  ///< rows of dy that dz rows come from: the first, and positions in all
  __device__ TileBand(const TileGeometry& g, int band) {
    in_begin = band * g.band_rows;
    in_end = min(g.in_h, in_begin + g.band_rows);
    const bool last = band == g.bands - 1;
    own_begin = band == 0 ? 0 : min(g.conv_h, max(0, in_begin + g.pad_top - 1));
    own_end = last ? g.conv_h : min(g.conv_h, max(0, in_end + g.pad_top - 1));
    dz_begin = min(g.conv_h, max(0, in_begin + g.pad_top - 2));
    dz_end = min(g.conv_h, in_end + g.pad_top);
    x_begin = max(0, min(in_begin, own_begin - g.pad_top));
    x_end = min(g.in_h, max(in_end, own_end - g.pad_top + 2));
    cell_begin = dz_begin / g.pool;
    cells = max(0, min(g.out_h, (dz_end + g.pool - 1) / g.pool) - cell_begin) * g.out_w;
  }
  __device__ int own_positions(const TileGeometry& g) const { return (own_end - own_begin) * g.conv_w; }
  __device__ int dz_positions(const TileGeometry& g) const { return (dz_end - dz_begin) * g.conv_w; }
};

/// Elements between positions, as in SeparableBackwardMemory.
template <class T, int kChannels>
inline constexpr int kMidStride = sizeof(T) == 4 || kChannels == 8 ? kChannels : kChannels + 8;
template <int kChannels>
inline constexpr int kGradientMidStride = kChannels == 8 ? 8 : kChannels + 8;

/// Two neighbouring channels as floats.
__device__ inline float2 load_two(const float* from) { return *reinterpret_cast<const float2*>(from); }
__device__ inline float2 load_two(const __half* from) {
  return __half22float2(*reinterpret_cast<const __half2*>(from));
}
__device__ inline float2 load_two(const __nv_bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ inline void store_two(float* to, float2 v) { *reinterpret_cast<float2*>(to) = v; }
__device__ inline void store_two(__half* to, float2 v) { *reinterpret_cast<__half2*>(to) = __float22half2_rn(v); }
__device__ inline void store_two(__nv_bfloat16* to, float2 v) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __float22bfloat162_rn(v);
}

/// Eight channels of dy where bit i of `open` says that channel i passes, 0 elsewhere.
template <class T>
struct Chunk {
  static constexpr int kVectors = static_cast<int>(sizeof(T)) / 2;  // of 16 bytes
  uint4 v[kVectors];
  __device__ static Chunk load(const T* from) {
    Chunk chunk;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) chunk.v[i] = reinterpret_cast<const uint4*>(from)[i];
    return chunk;
  }
  __device__ void store_open(T* to, std::uint32_t open) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      uint4 masked = v[i];
      if constexpr (kVectors == 1) {
        masked.x &= half_mask(open), masked.y &= half_mask(open >> 2);
        masked.z &= half_mask(open >> 4), masked.w &= half_mask(open >> 6);
      } else {
        const std::uint32_t bits = open >> (4 * i);
        masked = {bits & 1 ? masked.x : 0, bits & 2 ? masked.y : 0, bits & 4 ? masked.z : 0, bits & 8 ? masked.w : 0};
      }
      reinterpret_cast<uint4*>(to)[i] = masked;
    }
  }
};

/// Bits 0, 4, 8 … 28 of `nibbles`, as eight neighbours.
__device__ inline std::uint32_t every_fourth_bit(std::uint32_t nibbles) {
  std::uint32_t bits = nibbles & 0x11111111u;
  bits = (bits | bits >> 3) & 0x03030303u;
  bits = (bits | bits >> 6) & 0x000f000fu;
  return (bits | bits >> 12) & 0xffu;
}

/// Starts the loads of an image's x (positions, kChannels): the band's rows of one group of channels.
template <class T, int kChannels>
__device__ void start_x(const TileGeometry& g, const TileBand& band, const T* x, int image, int group, T* to) {
  constexpr int kEach = 16 / static_cast<int>(sizeof(T)), kChunks = kChannels / kEach;
  const T* from =
      x + (static_cast<std::int64_t>(image) * g.in_h + band.x_begin) * g.in_w * g.in_channels + group * kChannels;
  const int chunks = (band.x_end - band.x_begin) * g.in_w * kChunks;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kSeparableThreads) {
    copy_async<16>(to + i * kEach, from + i / kChunks * g.in_channels + i % kChunks * kEach);
  }
}

/// Starts the load of a group's columns of the pointwise weights, to (out channels, kMidStride).
template <class T, int kChannels>
__device__ void start_weights(const TileGeometry& g, const T* w, int group, T* to) {
  constexpr int kEach = 16 / static_cast<int>(sizeof(T)), kChunks = kChannels / kEach;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < g.out_channels * kChunks; i += kSeparableThreads) {
    const int o = i / kChunks, c = i % kChunks * kEach;
    copy_async<16>(to + o * kMidStride<T, kChannels> + c, w + o * g.in_channels + group * kChannels + c);
  }
}

/// dz of a band: dy where the codes say it came from. `start` loads dy of each cell (a position, or a pooling window)
/// to the cell's first position in dz, and `finish` masks it there and spreads it over the window. A thread has the
/// same eight channels in all its cells.
template <class T>
struct GradientLoader {
  const TileGeometry& g;
  const TileBand& band;
  T* dz;
  std::uint8_t* codes;

  /// A thread's channels / 8, and its cells: first, first + step …
  struct Share {
    int chunk, first, step;
  };
  __device__ Share share() const {
    const Divided at = g.by_chunks.divide(threadIdx.x);
    const int step = static_cast<int>(g.by_chunks.quotient(kSeparableThreads)), first = static_cast<int>(at.quotient);
    return {static_cast<int>(at.remainder), first < step ? first : band.cells, step};
  }
  /// dz of a cell's first position, and the row of the convolution's output it is in.
  struct Place {
    T* dz;
    int row;
  };
  __device__ Place place(int cell, int chunk) const {
    int position = cell, row = 0;
    if (g.pool == 2) {
      const Divided at = g.by_out_w.divide(static_cast<std::uint32_t>(cell));
      row = 2 * (band.cell_begin + static_cast<int>(at.quotient));
      position = (max(row, band.dz_begin) - band.dz_begin) * g.conv_w + 2 * static_cast<int>(at.remainder);
    }
    return {dz + position * g.dz_stride + chunk * 8, row};
  }

  __device__ void start(const T* dy, const std::uint8_t* all_codes, int image) const {
    const std::int64_t first = (static_cast<std::int64_t>(image) * g.out_h + band.cell_begin) * g.out_w;
    const Share mine = share();
    const T* from = dy + first * g.out_channels + mine.chunk * 8;
#pragma unroll 1
    for (int cell = mine.first; cell < band.cells; cell += mine.step) {
      T* to = place(cell, mine.chunk).dz;
#pragma unroll
      for (int v = 0; v < Chunk<T>::kVectors; ++v) {
        copy_async<16>(reinterpret_cast<uint4*>(to) + v,
                       reinterpret_cast<const uint4*>(from + cell * g.out_channels) + v);
      }
    }
    if (!g.masked) return;
    const int cell_bytes = g.pool == 2 ? g.out_channels / 2 : g.out_channels / 8, bytes = band.cells * cell_bytes;
    const std::uint8_t* code = all_codes + first * cell_bytes;
    if (cell_bytes % 4 == 0) {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x) * 4; i < bytes; i += kSeparableThreads * 4) {
        copy_async<4>(codes + i, code + i);
      }
    } else {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < bytes; i += kSeparableThreads) codes[i] = code[i];
    }
  }

  /// After the loads of all threads. Each thread changes what it has started.
  __device__ void finish() const {
    if (!g.masked) return;
    const Share mine = share();
    const int chunks = g.out_channels / 8;
    if (g.pool == 1) {
#pragma unroll 2
      for (int cell = mine.first; cell < band.cells; cell += mine.step) {
        T* at = dz + cell * g.dz_stride + mine.chunk * 8;
        Chunk<T>::load(at).store_open(at, codes[cell * chunks + mine.chunk]);
      }
      return;
    }
#pragma unroll 1
    for (int cell = mine.first; cell < band.cells; cell += mine.step) {
      const Place first = place(cell, mine.chunk);
      const Chunk<T> chunk = Chunk<T>::load(first.dz);
      const std::uint32_t nibbles = reinterpret_cast<const std::uint32_t*>(codes)[cell * chunks + mine.chunk];
#pragma unroll
      for (int pixel = 0; pixel < 4; ++pixel) {
        const int row = first.row + pixel / 2;
        if (row < band.dz_begin || row >= band.dz_end) continue;
        const int below = row - max(first.row, band.dz_begin);
        chunk.store_open(first.dz + (below * g.conv_w + pixel % 2) * g.dz_stride, every_fourth_bit(nibbles >> pixel));
      }
    }
  }
};

}  // namespace bantam::kernels::cuda
