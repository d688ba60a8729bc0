// Weight gradients of a separable block of few input channels from one matrix of moments G = Σ patchᵀ · dz, where dx is
// not wanted: d_pointwise = Σ over taps of depthwise · G, d_depthwise = Σ over outputs of pointwise · G, and a row of
// ones in the patch computes the bias. Windows of 2x2 positions, because pooling keeps one of the four.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/separable/separable_backward_tiles.h"

namespace bantam::kernels::cuda {

struct MomentGeometry {
  int in_h, in_w, out_h, out_w, out_channels, pad_top, pad_left;
  int columns;  ///< columns of x with its padding
  int window_rows, all_window_rows, window_columns, batch, images_each;
  bool masked;                                     ///< there are codes
  int pairs_at, places_at, weights_at;             ///< bytes from the start of shared memory
  FastDivide by_window_columns, by_out_w, by_row;  ///< by_row: columns · input channels
};

template <class T>
struct MomentPointers {
  const T *x, *w_depthwise, *w_pointwise, *dy;
  const std::uint8_t* codes;
  float* partials;
};

/// A block covers this band: windows in rows [window_begin, window_end), and rows of x from x_begin on (which may lie
/// in the padding), of which [read_begin, read_end) exist.
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

/// Weights (9, kIn) and (out channels, kIn) as floats, one after the other, for write_moment_gradients.
template <int kIn, class T>
__device__ inline void load_moment_weights(const MomentGeometry& g, const MomentPointers<T>& at, float* to) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 9 * kIn) to[thread] = to_float(at.w_depthwise[thread]);
#pragma unroll 1
  for (int i = thread; i < g.out_channels * kIn; i += kSeparableThreads) to[9 * kIn + i] = to_float(at.w_pointwise[i]);
}

/// From G to the gradients of this block. `sums` (warps: part · slices + slice, 32 channels, kRows) and `weights` in
/// shared memory.
template <int kIn, int kRows, class T>
__device__ void write_moment_gradients(const MomentGeometry& g, const MomentPointers<T>& at, float* sums,
                                       const float* weights, int part_index) {
  const MomentShare share(g.out_channels);
  const int thread = static_cast<int>(threadIdx.x), count = share.slices * 32 * kRows;
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < count; i += kSeparableThreads) {
    float sum = sums[i];
    for (int part = 1; part < share.parts; ++part) sum += sums[part * count + i];
    sums[i] = sum;  // G, transposed: (out channels, taps · kIn + 1)
  }
  __syncthreads();
  const int in_out = g.out_channels * kIn;
  float* to = at.partials + static_cast<std::int64_t>(part_index) * (in_out + 9 * kIn + g.out_channels);
#pragma unroll 1
  for (int i = thread; i < in_out; i += kSeparableThreads) {
    float sum = 0;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const int row = tap * kIn + i % kIn;
      sum += weights[row] * sums[i / kIn * kRows + row];
    }
    to[i] = sum;
  }
  // A warp a row: 32 channels at a time, then the lanes' sums.
#pragma unroll 1
  for (int row = thread / 32; row < 9 * kIn; row += kSeparableThreads / 32) {
    float sum = 0;
    for (int o = thread % 32; o < g.out_channels; o += 32) {
      sum += weights[(9 + o) * kIn + row % kIn] * sums[o * kRows + row];
    }
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
    if (thread % 32 == 0) to[in_out + row] = sum;
  }
#pragma unroll 1
  for (int o = thread; o < g.out_channels; o += kSeparableThreads) to[in_out + 9 * kIn + o] = sums[o * kRows + 9 * kIn];
}

}  // namespace bantam::kernels::cuda
