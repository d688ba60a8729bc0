// 3x3 depthwise convolution on CUDA, and its input gradient: every position is read about once, rows slide through
// registers.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_strips.cuh"

namespace bantam::kernels::cuda {

/// Calls emit(sums) for a task's rows of y, from the top. Rows of y are summed as rows of x pass: at stride 1 three are
/// under way, at stride 2 two.
template <int kStride, int kColumns, class Rows, class Values, int N, class Emit>
__device__ inline void convolve_strip(Rows& rows, const Values& of, const float (&taps)[9][N], int steps, Emit&& emit) {
  constexpr int kData = (kColumns - 1) * kStride + 3, kUnderWay = kStride == 1 ? 3 : 2;
  float data[kData][N], sum[kUnderWay][kColumns][N];
  rows.begin();
  rows.fetch();
  if constexpr (kStride == 1) {
    // Step k reads row k for output rows k (tap row 0), k - 1 and k - 2, which is then done.
    for (int k0 = 0; k0 < steps + 2; k0 += 3) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        const int k = k0 + i;
        if (k >= steps + 2) break;
        set_zero(sum[i]);
        if (rows.exists()) {
          rows.load(of, data);
          add_tap_row<1>(data, taps, 0, sum[i]);
          add_tap_row<1>(data, taps, 1, sum[(i + 2) % 3]);
          add_tap_row<1>(data, taps, 2, sum[(i + 1) % 3]);
        } else {
          rows.skip();
        }
        if (k >= 2) emit(sum[(i + 1) % 3]);
      }
    }
  } else {
    // Step k reads rows 2k, which ends output row k - 1 and begins k, and 2k + 1.
    for (int k0 = 0; k0 < steps + 1; k0 += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = k0 + i;
        if (k > steps) break;
        set_zero(sum[i]);
        if (rows.exists()) {
          rows.load(of, data);
          add_tap_row<2>(data, taps, 0, sum[i]);
          add_tap_row<2>(data, taps, 2, sum[1 - i]);
        } else {
          rows.skip();
        }
        if (k > 0) emit(sum[1 - i]);
        if (k == steps) break;
        if (rows.exists()) {
          rows.load(of, data);
          add_tap_row<2>(data, taps, 1, sum[i]);
        } else {
          rows.skip();
        }
      }
    }
  }
}

/// Rows of the plain convolutions on their way to the L2 cache: of half types, for which it was measured to help.
template <class T>
inline constexpr int kRowsAhead = sizeof(T) == 2 ? 2 : 0;

/// Forward at stride 1 or 2, and the input gradient at stride 1, with the kernel turned around.
template <class T, int N, int kStride, int kColumns>
__global__ void __launch_bounds__(kStripThreads, 4)
    depthwise_3x3_kernel(const T* x, const T* weights, T* y, Strips g, StripGrid grid, bool backwards) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  const std::uint32_t index = block.quotient * blockDim.y + threadIdx.y;
  if (c >= g.channels || index >= g.tasks) return;
  const StripTask task = g.task(index);
  float taps[9][N];
  load_taps<T, N>(weights, g.channels, c, backwards, taps);
  using Values = PlainValues<T, N>;
  auto rows = rows_under<Values, kColumns, kStride, kRowsAhead<T>, T, N>(x, g, task, c);
  StripWriter<T> out(y, g, task, c);
  convolve_strip<kStride, kColumns>(rows, Values{}, taps, task.end_row - task.first_row,
                                    [&](const float(&sums)[kColumns][N]) { out.write(sums); });
}

/// Input gradient at stride 2. In coordinates u = x's row + pad_top, v = x's column + pad_left, the four positions (2m,
/// 2n) to (2m + 1, 2n + 1) read dy at rows m - 1, m and columns n - 1, n; a thread walks down m.
template <class T, int N, int kColumns>
__global__ void __launch_bounds__(kStripThreads, 4)
    depthwise_3x3_spread_kernel(const T* dy, const T* weights, T* dx, Strips g, StripGrid grid) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  const std::uint32_t index = block.quotient * blockDim.y + threadIdx.y;
  if (c >= g.channels || index >= g.tasks) return;
  const StripTask task = g.task(index);
  float taps[9][N];
  load_taps<T, N>(weights, g.channels, c, false, taps);

  const unsigned inside = columns_inside<kColumns + 1>(task.first_column - 1, g.out_w);
  const unsigned wanted = columns_inside<2 * kColumns>(2 * task.first_column - g.pad_left, g.in_w);
  const std::int64_t dy_row = static_cast<std::int64_t>(g.out_w) * g.channels,
                     dx_row = static_cast<std::int64_t>(g.in_w) * g.channels;
  int row = task.first_row - 1;
  const T* from =
      dy + (task.image * g.out_h + row) * dy_row + (static_cast<std::int64_t>(task.first_column) - 1) * g.channels + c;
  int to_row = 2 * task.first_row - g.pad_top;
  T* to = dx + (task.image * g.in_h + to_row) * dx_row +
          (2 * static_cast<std::int64_t>(task.first_column) - g.pad_left) * g.channels + c;

  RawRow<T, N, kColumns + 1> next;
  float above[kColumns + 1][N], here[kColumns + 1][N];
  const auto prefetch = [&](int k) {
    if (row + k >= 0 && row + k < g.out_h && row + k <= task.end_row)
      prefetch_row<1, kColumns>(from + k * dy_row, inside, g.channels);
  };
  const auto fetch = [&] {
    next.load(from, row >= 0 && row < g.out_h ? inside : 0u, g.channels);
    if constexpr (kRowsAhead<T> != 0) prefetch(kRowsAhead<T>);
  };
  const auto advance = [&](float(&data)[kColumns + 1][N]) {
    next.floats(data);
    ++row;
    from += dy_row;
    fetch();
  };
  const auto store = [&](const float(&values)[2 * kColumns][N]) {
    if (to_row >= 0 && to_row < g.in_h) {
#pragma unroll
      for (int t = 0; t < 2 * kColumns; ++t)
        if (wanted >> t & 1u) repack<N>(values[t], to + t * g.channels);
    }
    ++to_row;
    to += dx_row;
  };
#pragma unroll
  for (int k = 0; k < kRowsAhead<T>; ++k) prefetch(k);
  fetch();
  advance(above);
  for (int m = task.first_row; m < task.end_row; ++m) {
    advance(here);
    float out[2 * kColumns][N];
#pragma unroll
    for (int t = 0; t < kColumns; ++t)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        out[2 * t][n] = here[t + 1][n] * taps[0][n] + here[t][n] * taps[2][n] + above[t + 1][n] * taps[6][n] +
                        above[t][n] * taps[8][n];
        out[2 * t + 1][n] = here[t + 1][n] * taps[1][n] + above[t + 1][n] * taps[7][n];
      }
    store(out);
#pragma unroll
    for (int t = 0; t < kColumns; ++t)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        out[2 * t][n] = here[t + 1][n] * taps[3][n] + here[t][n] * taps[5][n];
        out[2 * t + 1][n] = here[t + 1][n] * taps[4][n];
      }
    store(out);
#pragma unroll
    for (int t = 0; t <= kColumns; ++t)
#pragma unroll
      for (int n = 0; n < N; ++n) above[t][n] = here[t][n];
  }
}

}  // namespace bantam::kernels::cuda
