// 3x3 depthwise convolution on CUDA, and its input gradient: every position is read about once, rows slide through
// registers.
#pragma once

#include "bantam/kernels/cuda/depthwise_strips.cuh"

namespace bantam::kernels::cuda {

/// Writes the positions of a strip that lie below `width`.
template <class T, int N, int kColumns>
__device__ inline void store_strip(const float (&values)[kColumns][N], T* to, int columns_left, int channels) {
#pragma unroll
  for (int t = 0; t < kColumns; ++t)
    if (t < columns_left) repack<N>(values[t], to + t * channels);
}

/// Forward at stride 1 or 2. Output rows are summed as their input rows pass: at stride 1 three are under way, at
/// stride 2 two. The next input row is on its way while one is used.
template <class T, int N, int kStride, int kColumns>
__global__ void __launch_bounds__(kStripThreads, 4)
    depthwise_3x3_kernel(const T* x, const T* weights, T* y, Strips g, StripGrid grid, bool backwards) {
  constexpr int kData = (kColumns - 1) * kStride + 3, kUnderWay = kStride == 1 ? 3 : 2;
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  const std::uint32_t index = block.quotient * blockDim.y + threadIdx.y;
  if (c >= g.channels || index >= g.tasks) return;
  const StripTask task = g.task(index);
  float taps[9][N];
  load_taps<T, N>(weights, g.channels, c, backwards, taps);

  const int first_column = task.first_column * kStride - g.pad_left;
  const unsigned inside = columns_inside<kData>(first_column, g.in_w);
  const std::int64_t in_row = static_cast<std::int64_t>(g.in_w) * g.channels,
                     out_row = static_cast<std::int64_t>(g.out_w) * g.channels;
  int row = task.first_row * kStride - g.pad_top;  // the input row that comes next
  const T* from = x + (task.image * g.in_h + row) * in_row + static_cast<std::int64_t>(first_column) * g.channels + c;
  T* to = y + (task.image * g.out_h + task.first_row) * out_row +
          static_cast<std::int64_t>(task.first_column) * g.channels + c;
  const int columns_left = g.out_w - task.first_column;

  RawRow<T, N, kData> next;
  float data[kData][N], sum[kUnderWay][kColumns][N];
  const auto fetch = [&] { next.load(from, row >= 0 && row < g.in_h ? inside : 0u, g.channels); };
  const auto advance = [&] {  // takes the row that came, sends for the one behind
    next.floats(data);
    ++row;
    from += in_row;
    fetch();
  };
  fetch();
  const int steps = task.end_row - task.first_row;
  if constexpr (kStride == 1) {
    // Step k reads row k for output rows k (tap row 0), k - 1 and k - 2, which is then done.
    for (int k0 = 0; k0 < steps + 2; k0 += 3) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        const int k = k0 + i;
        if (k >= steps + 2) break;
        advance();
#pragma unroll
        for (int t = 0; t < kColumns; ++t)
#pragma unroll
          for (int n = 0; n < N; ++n) sum[i][t][n] = 0;
        add_tap_row<1>(data, taps, 0, sum[i]);
        add_tap_row<1>(data, taps, 1, sum[(i + 2) % 3]);
        add_tap_row<1>(data, taps, 2, sum[(i + 1) % 3]);
        if (k < 2) continue;
        store_strip(sum[(i + 1) % 3], to, columns_left, g.channels);
        to += out_row;
      }
    }
  } else {
    // Step k reads rows 2k, which ends output row k - 1 and begins k, and 2k + 1.
    for (int k0 = 0; k0 < steps + 1; k0 += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = k0 + i;
        if (k > steps) break;
        advance();
#pragma unroll
        for (int t = 0; t < kColumns; ++t)
#pragma unroll
          for (int n = 0; n < N; ++n) sum[i][t][n] = 0;
        add_tap_row<2>(data, taps, 0, sum[i]);
        if (k > 0) {
          add_tap_row<2>(data, taps, 2, sum[1 - i]);
          store_strip(sum[1 - i], to, columns_left, g.channels);
          to += out_row;
        }
        if (k == steps) break;
        advance();
        add_tap_row<2>(data, taps, 1, sum[i]);
      }
    }
  }
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
  const auto fetch = [&] { next.load(from, row >= 0 && row < g.out_h ? inside : 0u, g.channels); };
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
