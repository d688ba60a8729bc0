// Norms of rows of memory on CUDA: a row stays in the registers of a few threads, of a warp or of a block, from its
// statistics to its output. Backward sums dscale and dshift in the registers of blocks that iterate over rows.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"
#include "bantam/kernels/norm/cuda/row_norm.h"

namespace bantam::kernels::cuda {

inline constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// Blocks that the registers of a multiprocessor shall suffice for: values of a thread, and what it makes of them.
template <int kValues>
inline constexpr int kForwardBlocks = kValues < 32 ? 4 : 2;
template <int kValues>
inline constexpr int kBackwardBlocks = kValues < 32 ? 2 : 1;

/// No activation.
struct Identity {
  __device__ float operator()(float x) const { return x; }
  __device__ float derivative(float) const { return 1.0f; }
};

/// How rows of `width` values are distributed: `lanes` neighbouring threads (a power of two up to a block) share a row;
/// lane l has its packs l, l + lanes, ….
struct RowsOfThreads {
  std::int64_t samples;
  int groups, width, lanes;

  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (lanes - 1); }
  /// Rows that a block has at once, and which of them is this thread's.
  __host__ __device__ int tile() const { return kRowThreads / lanes; }
  __device__ int place() const { return static_cast<int>(threadIdx.x) / lanes; }
  /// First value of pack k of N values.
  template <int N>
  __device__ int first(int k) const {
    return (lane() + k * lanes) * N;
  }
};

/// Adds up each of v over the threads of a row, which all get the sums, in a fixed order. All threads of a block call
/// it.
template <int K>
__device__ inline void sum_over_lanes(float (&v)[K], int lanes) {
  __shared__ float shared[K][kRowWarps];
#pragma unroll
  for (int k = 0; k < K; ++k)
    for (int apart = min(lanes, 32) / 2; apart > 0; apart /= 2) v[k] += __shfl_xor_sync(kWholeWarp, v[k], apart);
  if (lanes <= 32) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = lanes / 32, first = warp / warps * warps;
  __syncthreads();  // the call before has read
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int k = 0; k < K; ++k) shared[k][warp] = v[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    v[k] = 0;
    for (int i = 0; i < warps; ++i) v[k] += shared[k][first + i];
  }
}

/// A thread's share of a row, of which what lies past the row's end is zero.
template <class T, int N, int kPacks>
__device__ inline void load_row(const RowsOfThreads& rows, const T* row, bool there, Pack<T, N> (&loaded)[kPacks]) {
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int i = rows.first<N>(k);
    if (there && i < rows.width) {
      loaded[k] = load_pack<N>(row + i);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) loaded[k].v[n] = from_float<T>(0.0f);
    }
  }
}

struct RowStatistics {
  float mean, inv_std;
};

/// The statistics of a row that is in registers, in two passes, relative to its first value: a mean that is large
/// beside the deviation costs no digits.
template <class T, int N, int kPacks>
__device__ inline RowStatistics row_statistics(const RowsOfThreads& rows, float origin,
                                               const Pack<T, N> (&loaded)[kPacks], float epsilon) {
  const auto width = static_cast<float>(rows.width);
  float middle[1] = {0}, squares[1] = {0};
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
    if (rows.first<N>(k) < rows.width)
#pragma unroll
      for (int n = 0; n < N; ++n) middle[0] += to_float(loaded[k].v[n]) - origin;
  sum_over_lanes(middle, rows.lanes);
  middle[0] /= width;
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
    if (rows.first<N>(k) < rows.width)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float difference = (to_float(loaded[k].v[n]) - origin) - middle[0];
        squares[0] += difference * difference;
      }
  sum_over_lanes(squares, rows.lanes);
  return {origin + middle[0], 1.0f / sqrtf(squares[0] / width + epsilon)};
}

/// The operands of a row norm.
template <class T>
struct RowOperand {
  const T* x;
  const float *scale, *shift, *mean, *inv_std;
};

/// z of a value: spelled out, so that forward and backward get the same bits.
__device__ inline float row_linear(float x, RowStatistics statistics, float scale, float shift) {
  return fmaf(x - statistics.mean, statistics.inv_std * scale, shift);
}

/// y = f(z) of a row each `lanes` threads.
template <class T, int N, int kPacks, class Function>
__global__ void __launch_bounds__(kRowThreads, kForwardBlocks<N * kPacks>)
    row_norm_kernel(RowsOfThreads rows, RowOperand<T> norm, Function f, GroupNormOutput to) {
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * rows.tile() + rows.place();
  const std::int64_t all = rows.samples * rows.groups, row = min(mine, all - 1);
  const bool there = mine < all;
  const T* from = norm.x + row * rows.width;
  Pack<T, N> loaded[kPacks];
  load_row(rows, from, there, loaded);
  RowStatistics statistics;
  if (to.mean != nullptr) {
    statistics = row_statistics(rows, to_float(from[0]), loaded, to.epsilon);
    if (there && rows.lane() == 0) {
      to.mean[row] = statistics.mean;
      to.inv_std[row] = statistics.inv_std;
    }
  } else {
    statistics = {norm.mean[row], norm.inv_std[row]};
  }
  if (to.y == nullptr || !there) return;
  T* y = static_cast<T*>(to.y) + row * rows.width;
  const std::int64_t c0 = row % rows.groups * rows.width;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int i = rows.first<N>(k);
    if (i >= rows.width) continue;
    float v[N], scale[N], shift[N];
    unpack<N>(loaded[k], v);
    load_floats(norm.scale, c0 + i, 1.0f, scale);
    load_floats(norm.shift, c0 + i, 0.0f, shift);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = row_linear(v[n], statistics, scale[n], shift[n]);
    apply_values(f, v);
    repack<N>(v, y + i);
  }
}

/// Adds v[i] of all threads of a block of equal lane, and calls write(i, lane, sum) once for each. The order of the
/// additions is fixed. All threads of a block call it.
template <int kValues, class Write>
__device__ inline void sum_over_rows(const float (&v)[kValues], int lanes, Write&& write) {
  __shared__ float sums[kRowWarps][kValues][32];
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // the call before has read
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    float sum = v[i];
    for (int apart = 16; apart >= lanes; apart /= 2) sum += __shfl_down_sync(kWholeWarp, sum, apart);
    if (thread % 32 < lanes) sums[thread / 32][i][thread % 32] = sum;
  }
  __syncthreads();
  const int step = max(lanes / 32, 1);  // warps of a row
  for (int at = thread; at < kValues * lanes; at += kRowThreads) {
    const int i = at / lanes, lane = at % lanes;
    float sum = 0;
    for (int warp = lane / 32; warp < kRowWarps; warp += step) sum += sums[warp][i][lane % 32];
    write(i, lane, sum);
  }
}

/// dz, x̂ and w = scale·dz of N values.
template <int N>
struct RowTerms {
  float dz[N], normalised[N], w[N];
};

template <class T, int N, class Function>
__device__ inline RowTerms<N> row_terms(const RowOperand<T>& norm, std::int64_t c, RowStatistics statistics,
                                        const Function& f, const Pack<T, N>& x, const Pack<T, N>& dy) {
  RowTerms<N> terms;
  float v[N], g[N], scale[N], shift[N], slopes[N];
  unpack<N>(x, v);
  unpack<N>(dy, g);
  load_floats(norm.scale, c, 1.0f, scale);
  load_floats(norm.shift, c, 0.0f, shift);
#pragma unroll
  for (int n = 0; n < N; ++n) slopes[n] = row_linear(v[n], statistics, scale[n], shift[n]);
  apply_slopes(f, slopes);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    terms.normalised[n] = (v[n] - statistics.mean) * statistics.inv_std;
    terms.dz[n] = g[n] * slopes[n];
    terms.w[n] = scale[n] * terms.dz[n];
  }
  return terms;
}

/// A thread's sums for dshift and dscale: over all rows of its block, a value for each of its columns.
template <int N, int kPacks>
struct ColumnSums {
  float v[kPacks][2 * N] = {};

  __device__ void add(int k, const RowTerms<N>& terms) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      v[k][n] += terms.dz[n];
      v[k][N + n] = fmaf(terms.dz[n], terms.normalised[n], v[k][N + n]);
    }
  }
  /// The block's sums, to partials (parts, 2, channels) at the channels of its group.
  __device__ void write(const RowsOfThreads& rows, float* partials) const {
    const std::int64_t channels = static_cast<std::int64_t>(rows.groups) * rows.width;
    float* to = partials + blockIdx.x * 2 * channels + static_cast<std::int64_t>(blockIdx.y) * rows.width;
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      sum_over_rows(v[k], rows.lanes, [&](int i, int lane, float sum) {
        const int column = (lane + k * rows.lanes) * N + i % N;
        if (column < rows.width) to[i / N * channels + column] = sum;
      });
  }
};

/// dx of rows, plus the addend where there is one, and the block's sums of dshift and dscale. blockIdx.y counts the
/// groups of a sample.
template <class T, int N, int kPacks, class Function>
__global__ void __launch_bounds__(kRowThreads, kBackwardBlocks<N * kPacks>)
    row_gradient_kernel(RowsOfThreads rows, RowOperand<T> norm, const T* dy, const T* addend, Function f, T* dx,
                        float* partials) {
  let_next_kernel_start();
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.y) * rows.width, tile = rows.tile();
  ColumnSums<N, kPacks> columns;
  for (std::int64_t first = blockIdx.x * tile; first < rows.samples; first += gridDim.x * tile) {
    const std::int64_t sample = first + rows.place();
    const bool there = sample < rows.samples;
    const std::int64_t row = min(sample, rows.samples - 1) * rows.groups + blockIdx.y;
    Pack<T, N> x[kPacks], g[kPacks];
    load_row(rows, norm.x + row * rows.width, there, x);
    load_row(rows, dy + row * rows.width, there, g);
    const RowStatistics statistics{norm.mean[row], norm.inv_std[row]};
    float sums[2] = {0, 0};  // Σ w and Σ w·x̂
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int i = rows.first<N>(k);
      if (i >= rows.width) continue;
      const RowTerms<N> terms = row_terms(norm, c0 + i, statistics, f, x[k], g[k]);
      columns.add(k, terms);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        sums[0] += terms.w[n];
        sums[1] = fmaf(terms.w[n], terms.normalised[n], sums[1]);
      }
    }
    Pack<T, N> more[kPacks];
    load_row(rows, addend + row * rows.width, there && addend != nullptr, more);  // while the sums are exchanged
    sum_over_lanes(sums, rows.lanes);
    if (dx == nullptr || !there) continue;
    const float a = sums[0] / static_cast<float>(rows.width), b = sums[1] / static_cast<float>(rows.width);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int i = rows.first<N>(k);
      if (i >= rows.width) continue;
      const RowTerms<N> terms = row_terms(norm, c0 + i, statistics, f, x[k], g[k]);
      float v[N];
      unpack<N>(more[k], v);
#pragma unroll
      for (int n = 0; n < N; ++n) v[n] += statistics.inv_std * (terms.w[n] - a - terms.normalised[n] * b);
      repack<N>(v, dx + row * rows.width + i);
    }
  }
  if (partials != nullptr) columns.write(rows, partials);
}

}  // namespace bantam::kernels::cuda
