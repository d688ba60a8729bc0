// 3x3 depthwise convolution on CUDA that normalises and clamps its input as it reads, and computes the moments of its
// output.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_3x3.cuh"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {

/// Raw values normalised, clamped and rounded as if they had been written; zero in the padding.
template <class T, int N>
struct NormedValues {
  Affine<N> norm;
  Clamp f;

  template <int kData>
  __device__ void floats(const RawRow<T, N, kData>& row, unsigned inside, float (&values)[kData][N]) const {
#pragma unroll
    for (int i = 0; i < kData; ++i) {
      row.at[i].floats(values[i]);
#pragma unroll
      for (int n = 0; n < N; ++n) values[i][n] = norm.z(n, values[i][n]);
      f.round_and_clamp<T>(values[i], (inside >> i & 1u) != 0);
    }
  }
};

/// Mean and Σ of squared differences of N channels, relative to the first value that came: a mean that is large beside
/// the deviation costs no digits.
template <int N>
struct StripMoments {
  float count = 0, origin[N], sum[N] = {}, squares[N] = {};

  /// The first `columns` positions of a row, as T holds them.
  template <class T, int kColumns>
  __device__ void add_row(const float (&row)[kColumns][N], int columns) {
    if (count == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) origin[n] = row[0][n];
    }
    count += static_cast<float>(min(columns, kColumns));
    if (columns >= kColumns) {
#pragma unroll
      for (int t = 0; t < kColumns; ++t) add<T>(row[t]);
    } else {
#pragma unroll
      for (int t = 0; t < kColumns; ++t)
        if (t < columns) add<T>(row[t]);
    }
  }

 private:
  template <class T>
  __device__ void add(const float (&values)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float v = to_float(from_float<T>(values[n])) - origin[n];
      sum[n] += v;
      squares[n] = fmaf(v, v, squares[n]);
    }
  }
};

/// Merges the moments of a block's threads with equal threadIdx.x in the order of threadIdx.y (Chan, Golub and LeVeque
/// 1983), and writes them to (part, 3, channels): an origin, the mean relative to it, and squares. Every thread of the
/// block must call it.
template <int N>
__device__ inline void write_part_moments(const StripMoments<N>& moments, int first_channel, int channels, int part,
                                          float* partials, float* counts) {
  __shared__ float count[kStripThreads], origin[N][kStripThreads], mean[N][kStripThreads], squares[N][kStripThreads];
  const int lanes = static_cast<int>(blockDim.x), rows = static_cast<int>(blockDim.y);
  const int thread = static_cast<int>(threadIdx.y) * lanes + static_cast<int>(threadIdx.x);
  const bool any = moments.count > 0;
  count[thread] = moments.count;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float apart = any ? moments.sum[n] / moments.count : 0.0f;
    origin[n][thread] = any ? moments.origin[n] : 0.0f;
    mean[n][thread] = apart;
    squares[n][thread] = any ? fmaxf(moments.squares[n] - moments.sum[n] * apart, 0.0f) : 0.0f;
  }
  __syncthreads();
  for (int i = thread; i < lanes * N; i += lanes * rows) {
    const int lane = i / N, n = i % N;
    const float base = origin[n][lane];  // the first thread of a part always has values
    float total = 0, m = 0, m2 = 0;      // m: relative to base
    for (int row = 0; row < rows; ++row) {
      const int at = row * lanes + lane;
      if (count[at] == 0) continue;
      const float both = total + count[at], share = count[at] / both;
      const float delta = (origin[n][at] - base) + mean[n][at] - m;
      m2 += squares[n][at] + delta * delta * total * share;
      m += delta * share;
      total = both;
    }
    const int c = first_channel + lane * N + n;
    if (c >= channels) continue;
    float* to = partials + static_cast<std::int64_t>(part) * kMomentFloats * channels + c;
    to[0] = base;
    to[channels] = m;
    to[2 * channels] = m2;
    if (c == 0) counts[part] = total;
  }
}

/// y and its moments, part by part (StripParts): partials (parts, 3, channels), counts (parts).
template <class T, int N, int kStride, int kColumns>
__global__ void __launch_bounds__(kStripThreads, 3)
    norm_depthwise_forward_kernel(const T* x, AffineSource norm, Clamp f, const T* weights, T* y, Strips g,
                                  StripGrid grid, std::uint32_t tasks_each, float* partials, float* counts) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int first_channel = static_cast<int>(block.remainder * blockDim.x) * N;
  const int c = first_channel + static_cast<int>(threadIdx.x) * N;
  StripMoments<N> moments;
  if (c < g.channels) {
    float taps[9][N];
    load_taps<T, N>(weights, g.channels, c, false, taps);
    using Values = NormedValues<T, N>;
    constexpr int kAhead = sizeof(T) == 2 ? kStride - 1 : 0;  // at stride 1 it costs more than it brings
    const Values values{norm.load<N>(c), f};
    const std::uint32_t begin = block.quotient * tasks_each, end = min(begin + tasks_each, g.tasks);
    for (std::uint32_t index = begin + threadIdx.y; index < end; index += blockDim.y) {
      const StripTask task = g.task(index);
      auto rows = rows_under<Values, kColumns, kStride, kAhead, T, N>(x, g, task, c);
      StripWriter<T> out(y, g, task, c);
      convolve_strip<kStride, kColumns>(rows, values, taps, task.end_row - task.first_row,
                                        [&](const float(&sums)[kColumns][N]) {
                                          moments.template add_row<T>(sums, out.columns_left);
                                          out.write(sums);
                                        });
    }
  }
  write_part_moments(moments, first_channel, g.channels, static_cast<int>(block.quotient), partials, counts);
}

}  // namespace bantam::kernels::cuda
