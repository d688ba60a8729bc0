// Mean and variance of every channel on CUDA: a few rows at a time in registers, merged in a fixed order.
// Source of the merge: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"

namespace bantam::kernels::cuda {

/// Moments of N channels over `count` values each. Values are taken relative to the first row, so that a mean that is
/// large beside the standard deviation costs no digits. R is float within a part and double between parts.
template <class R, int N>
struct Moments {
  R count = 0, mean[N] = {}, m2[N] = {};  ///< m2: Σ of squared differences from the mean

  __device__ void merge(const Moments& other) {
    if (other.count == 0) return;
    const R total = count + other.count, share = other.count / total, both = count * share;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const R delta = other.mean[n] - mean[n];
      mean[n] += delta * share;
      m2[n] += other.m2[n] + delta * delta * both;
    }
    count = total;
  }
};

/// Merges the moments of all threads of equal threadIdx.x, in a fixed order; they end in the thread with threadIdx.y =
/// 0.
template <class R, int N>
__device__ inline void merge_over_block_rows(Moments<R, N>& moments) {
  __shared__ Moments<R, N> shared[kTileThreads];
  const int lanes = static_cast<int>(blockDim.x), row = static_cast<int>(threadIdx.y);
  const int thread = row * lanes + static_cast<int>(threadIdx.x);
  shared[thread] = moments;
  __syncthreads();
  for (int apart = static_cast<int>(blockDim.y) / 2; apart > 0; apart /= 2) {
    if (row < apart) {
      moments.merge(shared[thread + apart * lanes]);
      shared[thread] = moments;
    }
    __syncthreads();
  }
}

/// Adds a few rows of N channels to a thread's moments.
template <int N, int kRows>
__device__ inline void add_rows(const float (&v)[kRows][N], Moments<float, N>& moments) {
  Moments<float, N> rows;
  rows.count = kRows;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) rows.mean[n] += v[k][n];
    rows.mean[n] *= 1.0f / kRows;
#pragma unroll
    for (int k = 0; k < kRows; ++k) rows.m2[n] += (v[k][n] - rows.mean[n]) * (v[k][n] - rows.mean[n]);
  }
  moments.merge(rows);
}

/// Rows that a thread loads and merges at a time.
inline constexpr int kMomentRows = 8;

/// N channels of one row, relative to the origin.
template <int N, class T>
__device__ inline void relative_to(const float (&origin)[N], const Pack<T, N>& row, float (&v)[N]) {
  unpack<N>(row, v);
#pragma unroll
  for (int n = 0; n < N; ++n) v[n] -= origin[n];
}

/// Adds the rows of this block's part to a thread's moments; x points at its first channel.
template <int N, class T>
__device__ inline void add_part(const T* x, std::int64_t rows, std::int64_t channels, const float (&origin)[N],
                                Moments<float, N>& moments) {
  for_tiles<kMomentRows>(
      rows,
      [&](std::int64_t r) {
        Pack<T, N> loaded[kMomentRows];
#pragma unroll
        for (int k = 0; k < kMomentRows; ++k) loaded[k] = load_pack<N>(x + (r + k * blockDim.y) * channels);
        float v[kMomentRows][N];
#pragma unroll
        for (int k = 0; k < kMomentRows; ++k) relative_to<N>(origin, loaded[k], v[k]);
        add_rows<N, kMomentRows>(v, moments);
      },
      [&](std::int64_t r) {
        float v[1][N];
        relative_to<N>(origin, load_pack<N>(x + r * channels), v[0]);
        add_rows<N, 1>(v, moments);
      });
}

/// Writes each part's mean and m2 to partials (parts, 2, channels).
template <class T, int N>
__global__ void __launch_bounds__(kTileThreads, 2)
    moments_kernel(const T* x, std::int64_t rows, std::int64_t channels, float* partials) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x * N + threadIdx.x * N;
  let_next_kernel_start();
  Moments<float, N> moments;
  if (c < channels) {
    float origin[N];
    unpack<N>(x + c, origin);
    add_part<N>(x + c, rows, channels, origin, moments);
  }
  merge_over_block_rows(moments);
  if (c < channels && threadIdx.y == 0) {
    float* to = partials + std::int64_t{blockIdx.y} * 2 * channels + c;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      to[n] = moments.mean[n];
      to[channels + n] = moments.m2[n];
    }
  }
}

/// The moments of all rows from the parts': in double, so that squares relative to the origin keep the digits that the
/// parts' means have.
template <class T, class Finish>
struct TotalMoments {
  const T* x;
  DealtRows rows;
  Finish with;

  struct Begun {
    float origin;
    decltype(Finish{}.begin(0)) finish;
  };
  __device__ Begun begin(std::int64_t c) const { return {to_float(x[c]), with.begin(c)}; }
  __device__ void add(double (&sums)[2], int part, const float (&values)[2]) const {
    const auto count = static_cast<double>(rows.of(static_cast<unsigned>(part)));
    const double mean = values[0];
    sums[0] += count * mean;
    sums[1] += values[1] + count * mean * mean;
  }
  __device__ void finish(std::int64_t c, const Begun& begun, const double (&sums)[2]) const {
    const auto count = static_cast<double>(rows.rows);
    const double mean = sums[0] / count, m2 = sums[1] - sums[0] * mean;
    with(c, begun.finish, begun.origin, Moments<double, 1>{count, {mean}, {m2 > 0 ? m2 : 0}});
  }
};

/// finish(c, begun, origin, moments) on the device for every channel of x (rows, channels), rows > 0, with what
/// finish.begin(c) read. `partials` has room for column_parts(rows, channels)·2·channels floats.
template <class T, int N, class Finish>
void channel_moments(const Exec& exec, std::int64_t rows, std::int64_t channels, const T* x, float* partials,
                     const Finish& finish) {
  const auto [grid, block] = column_grid<N>(rows, channels);
  moments_kernel<T, N><<<grid, block, 0, stream_of(exec)>>>(x, rows, channels, partials);
  check_launch("moments_kernel");
  const DealtRows dealt{rows, block.y * kMomentRows, grid.y};
  merge_parts<2>(exec, partials, grid.y, channels, TotalMoments<T, Finish>{x, dealt, finish});
}

}  // namespace bantam::kernels::cuda
