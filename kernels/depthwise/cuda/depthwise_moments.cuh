// Moments of the output of depthwise kernels on CUDA that walk down strips, for the batch norm that reads it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/depthwise/depthwise_parts.h"

namespace bantam::kernels::cuda {

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
/// 1983), and writes them as part `part`. Every thread of the block must call it.
template <int N>
__device__ inline void write_part_moments(const StripMoments<N>& moments, int first_channel, int part,
                                          const PartMoments& to) {
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
  for (int i = thread; i < lanes * N; i += kStripThreads) {
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
    if (c >= to.channels) continue;
    float* const out = to.moments + std::int64_t{3} * part * to.channels + c;
    out[0] = base;
    out[to.channels] = m;
    out[2 * to.channels] = m2;
    if (c == 0) to.counts[part] = total;
  }
}

/// The moments of a block's threads in shared memory, each thread's its own: for kernels that have no registers left.
template <int N>
struct SharedStripMoments {
  float count[kStripThreads], origin[N][kStripThreads], sum[N][kStripThreads], squares[N][kStripThreads];

  __device__ void clear() { put({}); }
  template <class T, int kColumns>
  __device__ void add_row(const float (&row)[kColumns][N], int columns) {
    StripMoments<N> moments = get();
    moments.template add_row<T>(row, columns);
    put(moments);
  }
  __device__ StripMoments<N> get() const {
    StripMoments<N> moments;
    moments.count = count[thread()];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      moments.origin[n] = origin[n][thread()];
      moments.sum[n] = sum[n][thread()];
      moments.squares[n] = squares[n][thread()];
    }
    return moments;
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); }
  __device__ void put(const StripMoments<N>& moments) {
    count[thread()] = moments.count;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      origin[n][thread()] = moments.origin[n];
      sum[n][thread()] = moments.sum[n];
      squares[n][thread()] = moments.squares[n];
    }
  }
};

/// Replaces SharedStripMoments where no norm reads the output.
struct NoStripMoments {};
template <int N, bool kMoments>
using OutputMoments = std::conditional_t<kMoments, SharedStripMoments<N>, NoStripMoments>;

}  // namespace bantam::kernels::cuda
