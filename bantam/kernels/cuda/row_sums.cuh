// Sums over the rows of (rows, channels) arrays on CUDA, in one launch: blocks keep a column of channels and take tiles
// of rows; the last block of a column adds the blocks' results in order.
#pragma once

#include "bantam/kernels/cuda/last_block.cuh"
#include "bantam/kernels/cuda/libraries.h"
#include "bantam/kernels/cuda/row_tiles.cuh"

namespace bantam::kernels::cuda {

/// How an array is dealt out: blockIdx.x counts columns of block.x·N channels, blockIdx.y the parts of the rows. Tiles
/// are dealt to the parts in turn, from the last: then the blocks of a launch are at about the same place, and begin
/// with the rows that the kernel before wrote last, which the L2 cache still holds.
struct ColumnGrid {
  dim3 grid, block;
};

template <int N>
ColumnGrid column_grid(std::int64_t rows, std::int64_t channels) {
  const std::int64_t packs = channels / N;
  const dim3 block = tile_block(std::min<std::int64_t>(packs, kColumnChannels / N));
  return {dim3(blocks_for(packs, block.x), static_cast<unsigned>(column_parts(rows, channels))), block};
}

/// Rows of a tile whose threads take kRows each: first_row, + blockDim.y, … .
template <int kRows>
__device__ inline std::int64_t tile_rows() {
  return static_cast<std::int64_t>(blockDim.y) * kRows;
}

/// Calls whole(first row of this thread) for the full tiles of this block's part, and single(row) for its rows of a
/// tile that is cut short.
template <int kRows, class Whole, class Single>
__device__ inline void for_tiles(std::int64_t rows, Whole&& whole, Single&& single) {
  const std::int64_t each = tile_rows<kRows>(), tiles = (rows + each - 1) / each;
  for (std::int64_t tile = tiles - 1 - blockIdx.y; tile >= 0; tile -= gridDim.y) {
    const std::int64_t first = tile * each + threadIdx.y;
    if ((tile + 1) * each <= rows) {
      whole(first);
    } else {
      for (std::int64_t r = first; r < rows; r += blockDim.y) single(r);
    }
  }
}

/// Rows of part `part`, as `for_tiles` deals them.
template <int kRows>
__device__ inline std::int64_t rows_of_part(std::int64_t rows, std::int64_t part) {
  const std::int64_t each = tile_rows<kRows>(), tiles = (rows + each - 1) / each;
  const auto turns = static_cast<std::uint32_t>(tiles - part + gridDim.y - 1) / gridDim.y;  // 64 bits divide slowly
  return turns * each - (part == 0 ? tiles * each - rows : 0);
}

/// Whether this block is the last of its column to come here; it then sees what the others wrote before. `counters`,
/// one a column, are 0 before and after; with one part they are not used.
__device__ inline bool last_of_column(unsigned* counters) {
  __shared__ bool last;
  __syncthreads();
  if (gridDim.y == 1) return true;
  if (threadIdx.x == 0 && threadIdx.y == 0)  // behind the barrier, it speaks for the whole block
    last = arrives_last(counters + blockIdx.x, gridDim.y);
  __syncthreads();
  return last;
}

/// Adds up the parts' results of this block's column, partials (parts, K, channels), in a fixed order: calls
/// add(sums, part, values) for every part, on K double sums a channel that begin with 0, then finish(c, sums) once a
/// channel, spread over the block's threads. Every thread of the block must call it; M divides the channels.
template <int K, int M, class Add, class Finish>
__device__ inline void merge_column(const float* partials, std::int64_t channels, int width, Add&& add,
                                    Finish&& finish) {
  __shared__ double shared[K][kTileThreads * M];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int lanes = width / M, row = thread / lanes, rows = kTileThreads / lanes;  // powers of two
  const int at = thread * M;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * width, c = column + thread % lanes * M;
  double sums[M][K] = {};
  if (c < channels) {
#pragma unroll 8
    for (int part = row; part < static_cast<int>(gridDim.y); part += rows) {
      Pack<float, M> loaded[K];
#pragma unroll
      for (int k = 0; k < K; ++k) loaded[k] = load_pack<M>(partials + (std::int64_t{part} * K + k) * channels + c);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        float values[K];
#pragma unroll
        for (int k = 0; k < K; ++k) values[k] = loaded[k].v[m];
        add(sums[m], part, values, m);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < K; ++k) shared[k][at + m] = sums[m][k];
  __syncthreads();
  for (int apart = rows / 2; apart > 0; apart /= 2) {
    for (int i = thread; i < apart * width; i += kTileThreads)
#pragma unroll
      for (int k = 0; k < K; ++k) shared[k][i] += shared[k][i + apart * width];
    __syncthreads();
  }
  for (int i = thread; i < width && column + i < channels; i += kTileThreads) {
    double total[K];
#pragma unroll
    for (int k = 0; k < K; ++k) total[k] = shared[k][i];
    finish(column + i, total);
  }
}

/// Rows that a thread loads before it uses the first.
inline constexpr int kSumRowsAtOnce = 4;

/// K sums a channel over all rows. terms.start<N>(c) gives what a thread keeps for its N channels; load<N>(offset)
/// reads N elements, and add(kept, loaded, offset, sum) adds their terms to sum[k·N + n]. finish(c, sums) gets a
/// channel's K sums (double).
template <int N, int K, class Terms, class Finish>
__global__ void __launch_bounds__(kTileThreads, 2)
    row_sums_kernel(std::int64_t rows, std::int64_t channels, Terms terms, float* partials, unsigned* counters,
                    Finish finish) {
  constexpr int kRows = kSumRowsAtOnce;
  let_next_kernel_start();
  const int width = static_cast<int>(blockDim.x) * N;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * width + threadIdx.x * N;
  float sum[K * N] = {};
  if (c < channels) {
    const auto kept = terms.template start<N>(c);
    const std::int64_t step = blockDim.y * channels;
    for_tiles<kRows>(
        rows,
        [&](std::int64_t r) {
          const std::int64_t at = r * channels + c;
          decltype(terms.template load<N>(at)) loaded[kRows];
#pragma unroll
          for (int k = 0; k < kRows; ++k) loaded[k] = terms.template load<N>(at + k * step);
#pragma unroll
          for (int k = 0; k < kRows; ++k) terms.add(kept, loaded[k], at + k * step, sum);
        },
        [&](std::int64_t r) { terms.add(kept, terms.template load<N>(r * channels + c), r * channels + c, sum); });
  }
  sum_over_block_rows(sum, [&](int i, int x, float total) {
    const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * width + x * N + i % N;
    if (channel < channels) partials[(std::int64_t{blockIdx.y} * K + i / N) * channels + channel] = total;
  });
  if (!last_of_column(counters)) return;
  const auto add = [](double(&sums)[K], int, const float(&values)[K], int) {
#pragma unroll
    for (int k = 0; k < K; ++k) sums[k] += values[k];
  };
  merge_column<K, N % 4 == 0 ? 4 : 1>(partials, channels, width, add, finish);
}

/// Launches it. `partials` has room for column_parts(rows, channels)·K·channels floats.
template <int N, int K, class Terms, class Finish>
void row_sums(const Exec& exec, std::int64_t rows, std::int64_t channels, float* partials, const Terms& terms,
              const Finish& finish) {
  const auto [grid, block] = column_grid<N>(rows, channels);
  row_sums_kernel<N, K><<<grid, block, 0, stream_of(exec)>>>(rows, channels, terms, partials,
                                                             Libraries::of(exec).block_counters(exec.stream), finish);
  check_launch("row_sums_kernel");
}

}  // namespace bantam::kernels::cuda
