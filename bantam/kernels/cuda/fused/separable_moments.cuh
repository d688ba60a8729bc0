// Weight gradients of a separable block of few input channels from one matrix of moments G = Σ patchᵀ · dz, where dx is
// not wanted: d_pointwise = Σ over taps of depthwise · G, d_depthwise = Σ over outputs of pointwise · G, and a row of
// ones in the patch gives the bias. Windows of 2x2 positions, because pooling leaves one of the four.
#pragma once

#include "bantam/kernels/cuda/fused/warp_mma.cuh"
#include "bantam/kernels/fast_divide.h"
#include "bantam/kernels/separable_backward_tiles.h"

namespace bantam::kernels::cuda {

struct MomentGeometry {
  int in_h, in_w, out_h, out_w, out_channels, pad_top, pad_left;
  int columns;  ///< of x with its padding
  int window_rows, all_window_rows, window_columns, batch, images_each;
  bool masked;                                     ///< there are codes
  int pairs_at;                                    ///< bytes: where the pairs of neighbours begin in shared memory
  FastDivide by_window_columns, by_out_w, by_row;  ///< by_row: columns · input channels
};

template <class T>
struct MomentPointers {
  const T *x, *w_depthwise, *w_pointwise, *dy;
  const std::uint8_t* codes;
  float* partials;
};

/// What a block covers: windows in rows [window_begin, window_end), and rows of x from x_begin on (which may lie in the
/// padding), of which [read_begin, read_end) exist.
struct MomentBand {
  int window_begin, windows, x_begin, x_rows, read_begin, read_end;
  __device__ MomentBand(const MomentGeometry& g, int band) {
    window_begin = band * g.window_rows;
    const int rows = min(g.all_window_rows, window_begin + g.window_rows) - window_begin;
    windows = rows * g.window_columns;
    x_begin = 2 * window_begin - g.pad_top;
    x_rows = 2 * rows + 2;
    read_begin = max(0, x_begin);
    read_end = min(g.in_h, x_begin + x_rows);
  }
};

/// How warps share the work: 32 output channels each, every parts-th step of the windows.
struct MomentShare {
  int slices, parts, slice, part;
  __device__ explicit MomentShare(int out_channels) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    slices = (out_channels + 31) / 32;
    parts = kSeparableThreads / 32 / slices;
    slice = warp % slices;
    part = warp / slices;
  }
};

/// From G to the gradients of this block. `sums` (warps: part · slices + slice, 32 channels, kRows) in shared memory.
template <int kIn, int kRows, class T>
__device__ void write_moment_gradients(const MomentGeometry& g, const MomentPointers<T>& at, float* sums,
                                       int part_index) {
  const MomentShare share(g.out_channels);
  const int thread = static_cast<int>(threadIdx.x), count = share.slices * 32 * kRows;
  __syncthreads();
  for (int i = thread; i < count; i += kSeparableThreads) {
    float sum = sums[i];
    for (int part = 1; part < share.parts; ++part) sum += sums[part * count + i];
    sums[i] = sum;  // G, transposed: (out channels, taps · kIn + 1)
  }
  __syncthreads();
  const int in_out = g.out_channels * kIn;
  float* to = at.partials + static_cast<std::int64_t>(part_index) * (in_out + 9 * kIn + g.out_channels);
  for (int i = thread; i < in_out; i += kSeparableThreads) {
    float sum = 0;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const int row = tap * kIn + i % kIn;
      sum += to_float(at.w_depthwise[row]) * sums[i / kIn * kRows + row];
    }
    to[i] = sum;
  }
  // A warp a row: 32 channels at a time, then the lanes' sums.
  for (int row = thread / 32; row < 9 * kIn; row += kSeparableThreads / 32) {
    float sum = 0;
    for (int o = thread % 32; o < g.out_channels; o += 32) {
      sum += to_float(at.w_pointwise[o * kIn + row % kIn]) * sums[o * kRows + row];
    }
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
    if (thread % 32 == 0) to[in_out + row] = sum;
  }
  for (int o = thread; o < g.out_channels; o += kSeparableThreads) to[in_out + 9 * kIn + o] = sums[o * kRows + 9 * kIn];
}

/// A step of the tensor-core kernel as loaded: 4 windows, one a lane % 4, times 32 channels, four a lane / 4 (channel
/// 4·(lane / 4) + j is column lane / 4 of tile j, so that a lane's loads are neighbours).
template <int kPool>
struct StepLoad {
  static constexpr int kPixels = kPool == 2 ? 1 : 4;
  uint2 dy[kPixels];
  std::uint32_t codes;  ///< 4 nibbles (pool 2: window pixels; pool 1: a nibble a pixel, a bit a channel)
};

/// Loads window `window` of an image's band; zeros where it does not exist.
template <int kPool, class T>
__device__ inline StepLoad<kPool> load_step(const MomentGeometry& g, const MomentPointers<T>& at,
                                            const MomentBand& band, int image, int window, int channel) {
  StepLoad<kPool> load = {};
  if (window >= band.windows || channel >= g.out_channels) return load;
  const Divided place = g.by_window_columns.divide(static_cast<std::uint32_t>(window));
  const int row = band.window_begin + static_cast<int>(place.quotient), column = static_cast<int>(place.remainder);
  if constexpr (kPool == 2) {
    const std::int64_t element =
        ((static_cast<std::int64_t>(image) * g.out_h + row) * g.out_w + column) * g.out_channels + channel;
    load.dy[0] = *reinterpret_cast<const uint2*>(at.dy + element);
    load.codes = *reinterpret_cast<const std::uint16_t*>(at.codes + element / 2);
  } else {
    const std::int64_t image_begin = static_cast<std::int64_t>(image) * g.out_h * g.out_w * g.out_channels;
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel) {
      const int h = 2 * row + pixel / 2, w = 2 * column + pixel % 2;
      if (h >= g.out_h || w >= g.out_w) continue;
      const std::int64_t element = image_begin + (h * g.out_w + w) * g.out_channels + channel;
      load.dy[pixel] = *reinterpret_cast<const uint2*>(at.dy + element);
      const std::uint32_t open = g.masked ? at.codes[element / 8] >> (element % 8) & 0xfu : 0xfu;
      load.codes |= open << (4 * pixel);
    }
  }
  return load;
}

/// dz as the right operand of tile j: k = 2t, 2t + 1 (b[0]) and 2t + 8, 2t + 9 (b[1]) are the four pixels of the lane's
/// window.
template <int kPool>
__device__ inline void right_operand(const StepLoad<kPool>& load, int j, std::uint32_t (&b)[2]) {
  if constexpr (kPool == 2) {
    const std::uint32_t pair = j < 2 ? load.dy[0].x : load.dy[0].y, value = j % 2 ? pair >> 16 : pair & 0xffffu;
    // The product with 1, 2^16 or 0 puts a 16-bit value into the low half, the high half or nowhere.
    const std::uint32_t spread = load.codes | load.codes << 15;
    b[0] = value * (spread >> (4 * j) & 0x10001u);
    b[1] = value * (spread >> (4 * j + 2) & 0x10001u);
  } else {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint2 left = load.dy[2 * row], right = load.dy[2 * row + 1];
      const std::uint32_t both =
          __byte_perm(j < 2 ? left.x : left.y, j < 2 ? right.x : right.y, j % 2 ? 0x7632 : 0x5410);
      const std::uint32_t open = load.codes >> (8 * row + j);  // bit 0: left pixel, bit 4: right pixel
      b[row] = both & (((open & 1u) | (open << 12 & 0x10000u)) * 0xffffu);
    }
  }
}

/// Pairs (element i, element i + kIn) of the band's rows: a pixel and its right neighbour, with padding.
template <int kIn>
__device__ inline void make_pairs(const MomentGeometry& g, const MomentBand& band, const std::uint16_t* raw,
                                  std::uint32_t* pairs) {
  const int count = band.x_rows * g.columns * kIn;
  if (g.columns == g.in_w && band.read_end - band.read_begin == band.x_rows) {
    for (int i = static_cast<int>(threadIdx.x) * 4; i < count; i += kSeparableThreads * 4) {
      const uint2 own = *reinterpret_cast<const uint2*>(raw + i), next = *reinterpret_cast<const uint2*>(raw + i + 4);
      const std::uint32_t v[4] = {own.x, own.y, next.x, next.y};
      std::uint32_t pair[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        constexpr std::uint32_t kTake[4] = {0x5410, 0x7610, 0x5432, 0x7632};  // halves (low of a, low of b) …
        const int right = e + kIn;
        pair[e] = __byte_perm(v[e / 2], v[right / 2], kTake[e % 2 * 2 + right % 2]);
      }
      *reinterpret_cast<uint4*>(pairs + i) = {pair[0], pair[1], pair[2], pair[3]};
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSeparableThreads) {
    const Divided at = g.by_row.divide(static_cast<std::uint32_t>(i));
    const int row = band.x_begin + static_cast<int>(at.quotient);
    const int column = static_cast<int>(at.remainder) / kIn - g.pad_left, c = static_cast<int>(at.remainder) % kIn;
    std::uint32_t pair = 0;
    if (row >= band.read_begin && row < band.read_end) {
      const std::uint16_t* from = raw + ((row - band.read_begin) * g.in_w + column) * kIn + c;
      if (column >= 0 && column < g.in_w) pair = from[0];
      if (column + 1 >= 0 && column + 1 < g.in_w) pair |= static_cast<std::uint32_t>(from[kIn]) << 16;
    }
    pairs[i] = pair;
  }
}

/// Starts the load of the band's rows of x, as they lie in memory.
template <int kIn>
__device__ inline void start_rows(const MomentGeometry& g, const MomentBand& band, const void* x, int image,
                                  std::uint16_t* raw) {
  const int count = (band.read_end - band.read_begin) * g.in_w * kIn;
  const std::uint16_t* from = static_cast<const std::uint16_t*>(x) +
                              (static_cast<std::int64_t>(image) * g.in_h + band.read_begin) * g.in_w * kIn;
  const int whole = reinterpret_cast<std::uintptr_t>(from) % 16 == 0 ? count / 8 : 0;
  for (int i = static_cast<int>(threadIdx.x); i < whole; i += kSeparableThreads) {
    copy_async<16>(raw + i * 8, from + i * 8);
  }
  for (int i = whole * 8 + static_cast<int>(threadIdx.x); i < count; i += kSeparableThreads) raw[i] = from[i];
}

/// Half types, on tensor cores: rows are taps and channels of a patch (and the ones), columns output channels, and the
/// sum runs over positions. blockIdx.x: band; blockIdx.y: part of the batch.
template <class T, int kIn, int kPool>
__global__ void __launch_bounds__(kSeparableThreads, kIn == 4 ? 2 : 3)
    separable_moments_kernel(const MomentGeometry g, const MomentPointers<T> at) {
  constexpr int kTaps = 9 * kIn, kTiles = (kTaps + 16) / 16, kRows = kTiles * 16 + 1, kAhead = kPool == 2 ? 4 : 1;
  extern __shared__ __align__(128) unsigned char shared[];
  std::uint16_t* raw = reinterpret_cast<std::uint16_t*>(shared);
  std::uint32_t* pairs = reinterpret_cast<std::uint32_t*>(shared + g.pairs_at);
  const MomentBand band(g, static_cast<int>(blockIdx.x));
  const MomentShare share(g.out_channels);
  const int lane = static_cast<int>(threadIdx.x % 32), channel = share.slice * 32 + lane / 4 * 4;
  const int first_image = static_cast<int>(blockIdx.y) * g.images_each;
  const int end_image = min(g.batch, first_image + g.images_each);
  const int steps = (band.windows + 3) / 4, rounds = (steps + share.parts - 1) / share.parts;
  const int padded = share.part < share.parts ? (rounds + kAhead - 1) / kAhead * kAhead : 0;
  int tap_at[2 * kTiles];  // of row 8·i + lane / 4: where its pairs lie from a window's first
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const int row = min(8 * i + lane / 4, kTaps - 1), tap = row / kIn;
    tap_at[i] = (tap / 3 * g.columns + tap % 3) * kIn + row % kIn;
  }
  float sums[kTiles][4][4] = {};
  StepLoad<kPool> loads[kAhead];
  if (threadIdx.x < 16) raw[(band.read_end - band.read_begin) * g.in_w * kIn + threadIdx.x] = 0;  // read with the last
  start_rows<kIn>(g, band, at.x, first_image, raw);
#pragma unroll
  for (int u = 0; u < kAhead; ++u) {
    loads[u] = load_step<kPool>(g, at, band, first_image, (u * share.parts + share.part) * 4 + lane % 4, channel);
  }
  for (int image = first_image; image < end_image; ++image) {
    wait_for_copies();
    __syncthreads();
    make_pairs<kIn>(g, band, raw, pairs);
    __syncthreads();
    if (image + 1 < end_image) start_rows<kIn>(g, band, at.x, image + 1, raw);
    for (int round = 0; round < padded; round += kAhead) {
      const bool wraps = round + kAhead >= padded;
      const int next_image = image + (wraps ? 1 : 0), next_round = wraps ? 0 : round + kAhead;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int step = (round + u) * share.parts + share.part;
        const StepLoad<kPool> load = loads[u];
        if (next_image < end_image) {
          loads[u] = load_step<kPool>(g, at, band, next_image,
                                      ((next_round + u) * share.parts + share.part) * 4 + lane % 4, channel);
        }
        if (step >= steps) continue;
        std::uint32_t right[4][2];
#pragma unroll
        for (int j = 0; j < 4; ++j) right_operand<kPool>(load, j, right[j]);
        const Divided place =
            g.by_window_columns.divide(static_cast<std::uint32_t>(min(step * 4 + lane % 4, band.windows - 1)));
        const std::uint32_t* window =
            pairs + (static_cast<int>(place.quotient) * 2 * g.columns + static_cast<int>(place.remainder) * 2) * kIn;
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          std::uint32_t left[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {  // rows lane / 4 and that + 8, of the window's upper and lower pixels
            const int part = 2 * m + i % 2, row = 8 * part + lane / 4;
            left[i] = window[tap_at[part] + i / 2 * g.columns * kIn];
            if (8 * part + 8 > kTaps && row >= kTaps) left[i] = row == kTaps ? WarpMma<T>::kOnes : 0u;
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) WarpMma<T>::multiply_add(sums[m][j], left, right[j]);
        }
      }
    }
  }
  __syncthreads();
  float* moments = reinterpret_cast<float*>(shared);
  if (share.part < share.parts) {
    float* own = moments + (share.part * share.slices + share.slice) * 32 * kRows;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int o = 4 * (lane % 4 * 2 + i % 2) + j, row = 16 * m + lane / 4 + i / 2 * 8;
          own[o * kRows + row] = sums[m][j][i];
        }
      }
    }
  }
  write_moment_gradients<kIn, kRows>(g, at, moments, static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x));
}

/// float32, by multiply-adds: a lane an output channel, which gathers the patch of its window's pixel (of each position
/// without pooling).
template <int kIn>
__global__ void __launch_bounds__(kSeparableThreads)
    separable_moments_kernel_float(const MomentGeometry g, const MomentPointers<float> at, int pool) {
  constexpr int kTaps = 9 * kIn, kRows = (kTaps + 16) / 16 * 16 + 1;
  extern __shared__ __align__(128) unsigned char shared[];
  float* x = reinterpret_cast<float*>(shared);
  const MomentBand band(g, static_cast<int>(blockIdx.x));
  const MomentShare share(g.out_channels);
  const int lane = static_cast<int>(threadIdx.x % 32), channel = share.slice * 32 + lane;
  const int first_image = static_cast<int>(blockIdx.y) * g.images_each;
  const int end_image = min(g.batch, first_image + g.images_each);
  const int row_length = g.columns * kIn, pitch = row_length + 8;  // neighbours below lie in other banks
  const int first_row = band.window_begin * 2 / pool, end_row = min(g.out_h, first_row + (band.x_rows - 2) / pool);
  const int cells = max(0, end_row - first_row) * g.out_w;
  float sums[kTaps + 1] = {};
  for (int image = first_image; image < end_image; ++image) {
    __syncthreads();
    const float* from = at.x + static_cast<std::int64_t>(image) * g.in_h * g.in_w * kIn;
    for (int i = static_cast<int>(threadIdx.x); i < band.x_rows * row_length; i += kSeparableThreads) {
      const Divided place = g.by_row.divide(static_cast<std::uint32_t>(i));
      const int row = band.x_begin + static_cast<int>(place.quotient);
      const int column = static_cast<int>(place.remainder) / kIn - g.pad_left;
      float* to = x + static_cast<int>(place.quotient) * pitch + static_cast<int>(place.remainder);
      if (row >= 0 && row < g.in_h && column >= 0 && column < g.in_w) {
        copy_async<4>(to, from + (row * g.in_w + column) * kIn + static_cast<int>(place.remainder) % kIn);
      } else {
        *to = 0;
      }
    }
    wait_for_copies();
    __syncthreads();
    if (share.part >= share.parts || channel >= g.out_channels) continue;
    const std::int64_t first = (static_cast<std::int64_t>(image) * g.out_h + first_row) * g.out_w;
#pragma unroll 4
    for (int cell = share.part; cell < cells; cell += share.parts) {
      const std::int64_t element = (first + cell) * g.out_channels + channel;
      const std::uint32_t code = pool == 2  ? at.codes[element / 2] >> (element % 2 * 4) & 0xfu
                                 : g.masked ? at.codes[element / 8] >> (element % 8) & 1u
                                            : 1u;
      const float dz = code != 0 ? at.dy[element] : 0.0f;
      const Divided place = g.by_out_w.divide(static_cast<std::uint32_t>(cell));
      const int row = static_cast<int>(place.quotient) * pool + (code >= 4 ? 1 : 0);
      const int column = static_cast<int>(place.remainder) * pool + (code & 0xau ? 1 : 0);
      const float* patch = x + row * pitch + column * kIn;
#pragma unroll
      for (int ky = 0; ky < 3; ++ky) {
#pragma unroll
        for (int i = 0; i < 3 * kIn; ++i) sums[ky * 3 * kIn + i] += dz * patch[ky * pitch + i];
      }
      sums[kTaps] += dz;
    }
  }
  __syncthreads();
  if (share.part < share.parts) {
    float* own = x + ((share.part * share.slices + share.slice) * 32 + lane) * kRows;
#pragma unroll
    for (int row = 0; row <= kTaps; ++row) own[row] = sums[row];
  }
  write_moment_gradients<kIn, kRows>(g, at, x, static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x));
}

}  // namespace bantam::kernels::cuda
