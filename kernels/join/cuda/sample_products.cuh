// Products of small matrices with the vectors of a few samples, by one block, and sums over samples of outer products:
// dense layers too small for GEMMs of their own. float32 sums in a fixed order.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/common/parameter_target.h"

namespace bantam::kernels::cuda {

inline constexpr int kProductThreads = 512;
/// Samples of a block, at most.
inline constexpr int kMostSamples = 4;
/// Values of each sample's vector that shared memory has at once.
inline constexpr int kStagedValues = 1024;

/// w (rows, depth), row-major.
template <class T>
struct Matrix {
  const T* w;
  std::int64_t rows, depth;
};

/// A block's shared memory: values [first, first + count) of each sample's vector (zeros for samples that are not
/// there), and partial sums.
struct alignas(16) ProductScratch {
  float values[kMostSamples][kStagedValues];
  float parts[kProductThreads * 4];

  __device__ void load(const float* from, std::int64_t width, int samples, std::int64_t first, int count) {
    __syncthreads();  // the values before are no longer read
    for (int i = static_cast<int>(threadIdx.x); i < kMostSamples * kStagedValues; i += kProductThreads) {
      const int s = i / kStagedValues, k = i % kStagedValues;
      if (k < count) values[s][k] = s < samples ? from[s * width + first + k] : 0.0f;
    }
    __syncthreads();
  }
};

/// Lanes that share a row of `depth` values in packs of N: a power of two up to a warp.
template <int N>
__device__ inline int lanes_of_row(std::int64_t depth) {
  int lanes = 1;
  while (lanes < 32 && lanes * N * 4 <= depth) lanes *= 2;
  return lanes;
}

/// y[s, r] = Σ_k m[r, k]·x[s, k] + bias[r]; x (samples, depth), y (samples, rows). By the whole block; y may be read by
/// it afterwards.
template <class T, int N>
__device__ inline void row_products(ProductScratch& staged, const Matrix<T>& m, const T* bias, const float* x, float* y,
                                    int samples) {
  const int lanes = lanes_of_row<N>(m.depth), lane = static_cast<int>(threadIdx.x) % lanes;
  for (std::int64_t first = 0; first < m.depth; first += kStagedValues) {
    const int count = static_cast<int>(min(std::int64_t{kStagedValues}, m.depth - first));
    staged.load(x, m.depth, samples, first, count);
    // Whole warps stay together: their lanes add up their sums.
    const std::int64_t each = kProductThreads / lanes, rounds = (m.rows + each - 1) / each;
    for (std::int64_t round = 0; round < rounds; ++round) {
      const std::int64_t r = round * each + threadIdx.x / lanes, row = min(r, m.rows - 1);
      float sum[kMostSamples] = {};
#pragma unroll 4
      for (int k = lane * N; k < count; k += lanes * N) {
        float w[N];
        unpack<N>(m.w + row * m.depth + first + k, w);
#pragma unroll
        for (int s = 0; s < kMostSamples; ++s) {
          const Pack<float, N> v = load_pack<N>(&staged.values[s][k]);
#pragma unroll
          for (int n = 0; n < N; ++n) sum[s] += w[n] * v.v[n];
        }
      }
      for (int s = 0; s < samples; ++s) {
        float total = sum[0];
#pragma unroll
        for (int other = 1; other < kMostSamples; ++other) total = s == other ? sum[other] : total;
        for (int apart = lanes / 2; apart > 0; apart /= 2) total += __shfl_xor_sync(0xffffffffu, total, apart);
        if (lane == 0 && r < m.rows) y[s * m.rows + r] = total + (first == 0 ? to_float(bias[r]) : y[s * m.rows + r]);
      }
    }
  }
  __syncthreads();
}

/// write(s, k, Σ_r x[s, r]·m[r, k]); x (samples, rows). By the whole block.
template <class T, int N, class Write>
__device__ inline void column_products(ProductScratch& staged, const Matrix<T>& m, const float* x, int samples,
                                       Write&& write) {
  const std::int64_t packs = m.depth / N;
  int lanes = 1;  // threads along the columns; the others share the rows
  while (lanes < kProductThreads && lanes < packs) lanes *= 2;
  const int lane = static_cast<int>(threadIdx.x) % lanes, part = static_cast<int>(threadIdx.x) / lanes;
  const int all_parts = kProductThreads / lanes;
  for (std::int64_t begin = 0; begin < packs; begin += lanes) {
    const std::int64_t column = min(begin + lane, packs - 1) * N;
    float sum[kMostSamples][N] = {};
    for (std::int64_t first = 0; first < m.rows; first += kStagedValues) {
      const int count = static_cast<int>(min(std::int64_t{kStagedValues}, m.rows - first));
      staged.load(x, m.rows, samples, first, count);
#pragma unroll 4
      for (int r = part; r < count; r += all_parts) {
        float w[N];
        unpack<N>(m.w + (first + r) * m.depth + column, w);
#pragma unroll
        for (int s = 0; s < kMostSamples; ++s)
#pragma unroll
          for (int n = 0; n < N; ++n) sum[s][n] += w[n] * staged.values[s][r];
      }
    }
#pragma unroll
    for (int s = 0; s < kMostSamples; ++s) {
      if (s >= samples) break;
#pragma unroll
      for (int n = 0; n < N; ++n) staged.parts[threadIdx.x * N + n] = sum[s][n];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < lanes * N; i += kProductThreads) {
        float total = 0;
#pragma unroll 8
        for (int other = 0; other < all_parts; ++other) total += staged.parts[other * lanes * N + i];
        if (begin * N + i < m.depth) write(s, begin * N + i, total);
      }
      __syncthreads();
    }
  }
}

/// dw[r, k] = Σ_s dy[s, r]·x[s, k], db[r] = Σ_s dy[s, r]; dy (samples, rows), x (samples, depth), float32.
struct OuterProducts {
  const float *dy, *x;
  std::int64_t rows, depth;
  ParameterTarget dw, db;
};

inline constexpr int kOuterTile = 32;

__device__ inline void write_sum(const ParameterTarget& to, std::int64_t at, float sum) {
  if (to.data != nullptr) to.data[at] = to.accumulate ? to.data[at] + sum : sum;
}

/// A tile of 32 x 32 weights: thread (x, y) has rows y, y + 8, y + 16 and y + 24 of column x.
__device__ inline void outer_tile(std::int64_t samples, const OuterProducts& p, std::int64_t tile) {
  __shared__ float dy[kOuterTile][kOuterTile + 1], x[kOuterTile][kOuterTile];
  const std::int64_t columns = (p.depth + kOuterTile - 1) / kOuterTile;
  const std::int64_t row = tile / columns * kOuterTile, column = tile % columns * kOuterTile;
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const bool has_column = column + tx < p.depth, has_row = row + tx < p.rows;
  float sum[4] = {}, bias = 0;
  for (std::int64_t first = 0; first < samples; first += kOuterTile) {
    __syncthreads();
#pragma unroll
    for (int s = ty; s < kOuterTile; s += 8) {
      const bool there = first + s < samples;
      dy[s][tx] = there && has_row ? p.dy[(first + s) * p.rows + row + tx] : 0.0f;
      x[s][tx] = there && has_column ? p.x[(first + s) * p.depth + column + tx] : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int s = 0; s < kOuterTile; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += dy[s][ty + 8 * i] * x[s][tx];
      if (ty == 0) bias += dy[s][tx];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (has_column && row + ty + 8 * i < p.rows) write_sum(p.dw, (row + ty + 8 * i) * p.depth + column + tx, sum[i]);
  if (ty == 0 && column == 0 && has_row) write_sum(p.db, row + tx, bias);
}

inline std::int64_t outer_tiles(const OuterProducts& p) {
  return std::int64_t{blocks_for(p.rows, kOuterTile)} * blocks_for(p.depth, kOuterTile);
}

static __global__ void __launch_bounds__(kTileThreads)
    outer_products_kernel(std::int64_t samples, OuterProducts a, OuterProducts b, std::int64_t tiles_of_a) {
  if (blockIdx.x < tiles_of_a)
    outer_tile(samples, a, blockIdx.x);
  else
    outer_tile(samples, b, blockIdx.x - tiles_of_a);
}

/// Both, in one launch.
inline void sum_outer_products(const Exec& exec, std::int64_t samples, const OuterProducts& a, const OuterProducts& b) {
  const std::int64_t tiles = outer_tiles(a);
  const auto blocks = static_cast<unsigned>(tiles + outer_tiles(b));
  if (blocks == 0) return;
  outer_products_kernel<<<blocks, dim3(kOuterTile, kTileThreads / kOuterTile), 0, stream_of(exec)>>>(samples, a, b,
                                                                                                     tiles);
  check_launch("outer_products_kernel");
}

}  // namespace bantam::kernels::cuda
