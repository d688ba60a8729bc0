// Mean and variance of every channel on CUDA: four rows at a time in registers, merged in a fixed order.
// Source of the merge: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".
#pragma once

#include "bantam/kernels/cuda/row_tiles.cuh"

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

/// N channels of one row, relative to the origin.
template <int N, class T>
__device__ inline void load_row(const T* x, const float (&origin)[N], float (&v)[N]) {
  unpack<N>(x, v);
#pragma unroll
  for (int n = 0; n < N; ++n) v[n] -= origin[n];
}

/// Moments of part blockIdx.y. With one part they go to finish(c, origin, moments), else to partials (parts, 2,
/// channels).
/// Four blocks a multiprocessor: then the most parts that `sum_parts` gives run at once on a large GPU.
template <class T, int N, class Finish>
__global__ void __launch_bounds__(kTileThreads, 4)
    part_moments_kernel(const T* x, std::int64_t rows, std::int64_t channels, float* partials, Finish finish) {
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  const std::int64_t part = blockIdx.y, end = part_begin(rows, gridDim.y, part + 1), step = blockDim.y;
  Moments<float, N> moments;
  float origin[N] = {};
  if (c < channels) {
    unpack<N>(x + c, origin);
    std::int64_t r = part_begin(rows, gridDim.y, part) + threadIdx.y;
    for (; r + 3 * step < end; r += 4 * step) {
      float v[4][N];
#pragma unroll
      for (int k = 0; k < 4; ++k) load_row<N>(x + (r + k * step) * channels + c, origin, v[k]);
      add_rows<N, 4>(v, moments);
    }
    for (; r < end; r += step) {
      float v[1][N];
      load_row<N>(x + r * channels + c, origin, v[0]);
      add_rows<N, 1>(v, moments);
    }
  }
  merge_over_block_rows(moments);
  if (c >= channels || threadIdx.y != 0) return;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    if (gridDim.y == 1) {
      finish(c + n, origin[n], Moments<double, 1>{moments.count, {moments.mean[n]}, {moments.m2[n]}});
    } else {
      partials[part * 2 * channels + c + n] = moments.mean[n];
      partials[(part * 2 + 1) * channels + c + n] = moments.m2[n];
    }
  }
}

inline constexpr int kMergeRows = 16;

/// Σ of `value` over the threads of equal threadIdx.x, in a fixed order; every thread gets it. Blocks of 32 x
/// kMergeRows threads.
__device__ inline double sum_over_merge_rows(double value) {
  __shared__ double shared[kMergeRows][32];
  __syncthreads();
  shared[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int row = 0; row < kMergeRows; ++row) sum += shared[row][threadIdx.x];
  return sum;
}

/// finish(c, origin, moments of all rows) for every channel: the mean from the parts' means, then m2 from the parts' m2
/// and the distance of their means, without a division a part.
template <class T, class Finish>
__global__ void __launch_bounds__(32 * kMergeRows)
    merge_parts_kernel(const T* x, std::int64_t rows, std::int64_t channels, int parts, const float* partials,
                       Finish finish) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const std::int64_t each = rows / parts, longer = rows % parts;  // as part_begin cuts
  const bool inside = c < channels;
  const auto count_of = [&](int part) { return static_cast<double>(each + (part < longer ? 1 : 0)); };
  const auto partial = [&](int part, int which) {
    return static_cast<double>(partials[(static_cast<std::int64_t>(part) * 2 + which) * channels + c]);
  };
  double sum = 0;
  if (inside) {
#pragma unroll 4
    for (int part = static_cast<int>(threadIdx.y); part < parts; part += kMergeRows)
      sum += count_of(part) * partial(part, 0);
  }
  const double mean = sum_over_merge_rows(sum) / static_cast<double>(rows);
  double squares = 0;
  if (inside) {
#pragma unroll 4
    for (int part = static_cast<int>(threadIdx.y); part < parts; part += kMergeRows) {
      const double apart = partial(part, 0) - mean;
      squares += partial(part, 1) + count_of(part) * apart * apart;
    }
  }
  const double m2 = sum_over_merge_rows(squares);
  if (inside && threadIdx.y == 0)
    finish(c, to_float(x[c]), Moments<double, 1>{static_cast<double>(rows), {mean}, {m2}});
}

/// finish(c, origin, moments) on the device for every channel of x (rows, channels), rows > 0. `partials` has room for
/// sum_parts·2·channels floats.
template <class T, int N, class Finish>
void channel_moments(const Exec& exec, std::int64_t rows, std::int64_t channels, const T* x, float* partials,
                     const Finish& finish) {
  const std::int64_t parts = sum_parts(rows, channels, DeviceKind::cuda), packs = channels / N;
  const dim3 block = tile_block(packs), grid(blocks_for(packs, block.x), static_cast<unsigned>(parts));
  part_moments_kernel<T, N><<<grid, block, 0, stream_of(exec)>>>(x, rows, channels, partials, finish);
  check_launch("part_moments_kernel");
  if (parts == 1) return;
  merge_parts_kernel<<<blocks_for(channels, 32), dim3(32, kMergeRows), 0, stream_of(exec)>>>(
      x, rows, channels, static_cast<int>(parts), partials, finish);
  check_launch("merge_parts_kernel");
}

}  // namespace bantam::kernels::cuda
