// 5x5 and 7x7 depthwise convolutions on CUDA, and their input gradients: weights in shared memory, sums of the rows
// under way in registers.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_strips.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kWideChannels = 2;  ///< of a thread
/// Threads that share a task. Sixteen read their weights, 8 bytes each, from shared memory in one cycle.
inline constexpr int kWideLanes = 16;

/// The weights (kKernel·kKernel, channels) of a block's channels.
template <int kKernel>
struct WideTaps {
  float2 at[kKernel * kKernel][kWideLanes];

  /// Every thread of the block must call it; `backwards` turns the kernel around.
  template <class T>
  __device__ void load(const T* weights, int channels, int c, bool backwards) {
    constexpr int kTaps = kKernel * kKernel;
    for (int tap = static_cast<int>(threadIdx.y); tap < kTaps && c < channels; tap += static_cast<int>(blockDim.y)) {
      float w[kWideChannels];
      unpack<kWideChannels>(weights + static_cast<std::int64_t>(backwards ? kTaps - 1 - tap : tap) * channels + c, w);
      at[tap][threadIdx.x] = {w[0], w[1]};
    }
    __syncthreads();
  }
  __device__ float2 operator()(int kh, int kw) const { return at[kh * kKernel + kw][threadIdx.x]; }
};

/// sum[t] += row[kStride·t + kw] · taps(kh, kw).
template <int kKernel, int kStride, int kColumns, int kData>
__device__ inline void add_wide_row(const float (&row)[kData][kWideChannels], const WideTaps<kKernel>& taps, int kh,
                                    float (&sum)[kColumns][kWideChannels]) {
#pragma unroll
  for (int kw = 0; kw < kKernel; ++kw) {
    const float2 w = taps(kh, kw);
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
      sum[t][0] += row[t * kStride + kw][0] * w.x;
      sum[t][1] += row[t * kStride + kw][1] * w.y;
    }
  }
}

/// Row d becomes row d + kBy, and the first kBy are zero.
template <int kBy, int kRows, int kColumns, int N>
__device__ inline void shift_rows(float (&rows)[kRows][kColumns][N]) {
#pragma unroll
  for (int d = kRows - 1; d >= kBy; --d)
#pragma unroll
    for (int t = 0; t < kColumns; ++t)
#pragma unroll
      for (int n = 0; n < N; ++n) rows[d][t][n] = rows[d - kBy][t][n];
#pragma unroll
  for (int d = 0; d < kBy; ++d) set_zero(rows[d]);
}

/// Forward, and the input gradient at stride 1, with the kernel turned around. Step k reads rows kStride·k + phase of x
/// for the rows k - d of y under way, tap row kStride·d + phase; row k - (kUnderWay - 1) is then done.
template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kStripThreads, kKernel == 5 && kStride == 1 ? 4 : 3)
    depthwise_wide_kernel(const T* x, const T* weights, T* y, Strips g, StripGrid grid, bool backwards) {
  constexpr int N = kWideChannels, kColumns = kWideColumns, kUnderWay = (kKernel + kStride - 1) / kStride;
  __shared__ WideTaps<kKernel> taps;
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  taps.load(weights, g.channels, c, backwards);
  const std::uint32_t index = block.quotient * blockDim.y + threadIdx.y;
  if (c >= g.channels || index >= g.tasks) return;
  const StripTask task = g.task(index);
  const int steps = task.end_row - task.first_row;
  using Values = PlainValues<T, N>;
  auto rows = rows_under<Values, kColumns, kStride, 0, T, N, kKernel>(x, g, task, c);
  StripWriter<T> out(y, g, task, c);
  float sum[kUnderWay][kColumns][N] = {}, data[(kColumns - 1) * kStride + kKernel][N];
  rows.fetch();
  for (int k = 0; k < steps + kUnderWay - 1; ++k) {
    shift_rows<1>(sum);
#pragma unroll
    for (int phase = 0; phase < kStride; ++phase) {
      if (!rows.exists()) {
        rows.skip();
        continue;
      }
      rows.load(Values{}, data);
#pragma unroll
      for (int d = kUnderWay - 1; d >= 0; --d)
        if (kStride * d + phase < kKernel && k >= d && k - d < steps)
          add_wide_row<kKernel, kStride>(data, taps, kStride * d + phase, sum[d]);
    }
    if (k >= kUnderWay - 1) out.write(sum[kUnderWay - 1]);
  }
}

/// Input gradient at stride 2. In coordinates u = x's row + pad_top, v = x's column + pad_left, dy's position (m, n)
/// adds to (2m + kh, 2n + kw). A thread walks down m, and after it rows 2m and 2m + 1 of its 2·kColumns columns are
/// done.
template <class T, int kKernel, int kColumns>
__global__ void __launch_bounds__(kStripThreads, 3)
    depthwise_wide_spread_kernel(const T* dy, const T* weights, T* dx, Strips g, StripGrid grid) {
  constexpr int N = kWideChannels, kBefore = (kKernel - 1) / 2, kData = kColumns + kBefore;
  __shared__ WideTaps<kKernel> taps;
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  taps.load(weights, g.channels, c, false);
  const std::uint32_t index = block.quotient * blockDim.y + threadIdx.y;
  if (c >= g.channels || index >= g.tasks) return;
  const StripTask task = g.task(index);

  const int first_column = task.first_column - kBefore, x_column = 2 * task.first_column - g.pad_left;
  const unsigned wanted = columns_inside<2 * kColumns>(x_column, g.in_w);
  const std::int64_t dy_row = static_cast<std::int64_t>(g.out_w) * g.channels,
                     dx_row = static_cast<std::int64_t>(g.in_w) * g.channels;
  const int first_row = task.first_row - kBefore;
  StripRows<T, N, kData, PlainValues<T, N>, kData, 0> rows{
      .from =
          dy + (task.image * g.out_h + first_row) * dy_row + static_cast<std::int64_t>(first_column) * g.channels + c,
      .row = first_row,
      .end_row = min(g.out_h, task.end_row),
      .inside = columns_inside<kData>(first_column, g.out_w),
      .channels = g.channels,
      .step = dy_row,
      .here = 0,
      .next = {}};
  int to_row = 2 * task.first_row - g.pad_top;
  T* to = dx + (task.image * g.in_h + to_row) * dx_row + static_cast<std::int64_t>(x_column) * g.channels + c;

  // sum[d] is row 2m + kKernel - 1 - d: after the shift by two rows, the newest two are 0.
  float sum[kKernel][2 * kColumns][N] = {}, data[kData][N];
  rows.fetch();
  for (int m = first_row; m < task.end_row; ++m) {
    shift_rows<2>(sum);
    if (rows.exists()) {
      rows.load(PlainValues<T, N>{}, data);
#pragma unroll
      for (int kh = 0; kh < kKernel; ++kh) {
        if (2 * m + kh < 2 * task.first_row || 2 * m + kh >= 2 * task.end_row) continue;
#pragma unroll
        for (int kw = 0; kw < kKernel; ++kw) {
          const float2 w = taps(kh, kw);
#pragma unroll
          for (int t = 0; t < kColumns; ++t) {
            sum[kKernel - 1 - kh][2 * t + kw % 2][0] += data[t + kBefore - kw / 2][0] * w.x;
            sum[kKernel - 1 - kh][2 * t + kw % 2][1] += data[t + kBefore - kw / 2][1] * w.y;
          }
        }
      }
    } else {
      rows.skip();
    }
    if (m < task.first_row) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (to_row >= 0 && to_row < g.in_h) {
#pragma unroll
        for (int t = 0; t < 2 * kColumns; ++t)
          if (wanted >> t & 1u) repack<N>(sum[kKernel - 1 - r][t], to + t * g.channels);
      }
      ++to_row;
      to += dx_row;
    }
  }
}

}  // namespace bantam::kernels::cuda
