// Sums over the rows of (rows, channels) arrays on CUDA: blocks keep a column of channels and iterate over tiles of
// rows; a small kernel that starts while they end adds the blocks' results in order.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"

namespace bantam::kernels::cuda {

/// How an array is distributed: blockIdx.x counts columns of block.x·N channels, blockIdx.y the parts of the rows.
/// Tiles are assigned to the parts in turn, from the last: then the blocks of a launch are at about the same place, and
/// begin with the rows that the kernel before wrote last, which the L2 cache still holds.
struct ColumnGrid {
  dim3 grid, block;
};

template <int N>
ColumnGrid column_grid(std::int64_t rows, std::int64_t channels) {
  const std::int64_t packs = channels / N;
  const dim3 block = tile_block(std::min<std::int64_t>(packs, kColumnChannels / N));
  return {dim3(blocks_for(packs, block.x), static_cast<unsigned>(column_parts(rows, channels))), block};
}

/// Rows of a tile whose threads load kRows each: first_row, + blockDim.y, … .
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

/// How many rows are each part's, as `for_tiles` deals them: tiles of `each` rows.
struct DealtRows {
  std::int64_t rows;
  unsigned each, parts;

  __device__ std::int64_t of(unsigned part) const {
    const auto tiles = static_cast<unsigned>((rows + each - 1) / each);
    const unsigned turns = (tiles - part + parts - 1) / parts;  // 64 bits divide slowly
    return static_cast<std::int64_t>(turns) * each - (part == 0 ? std::int64_t{tiles} * each - rows : 0);
  }
};

/// Channels of a block that merges parts, the threads that share a channel's, and the parts that each of those asks for
/// at once: all of a column, so that memory is waited for once.
inline constexpr int kMergeChannels = 8, kMergeRows = 64;
inline constexpr int kMergeAtOnce = (static_cast<int>(kColumnBlocks) + kMergeRows - 1) / kMergeRows;
inline constexpr int kMergeWarps = kMergeChannels * kMergeRows / 32;

/// Adds up the values of the four threads of a warp that share a channel.
__device__ inline double sum_of_channel(double value) {
  value += __shfl_xor_sync(0xffffffffu, value, kMergeChannels);
  return value + __shfl_xor_sync(0xffffffffu, value, 2 * kMergeChannels);
}

/// Adds up partials (parts, K, channels) in a fixed order. total.begin(c) reads what else finishing channel c needs,
/// ahead of the parts; total.add(sums, part, values) adds a part to K double sums that begin with 0; then
/// total.finish(c, begun, sums), once a channel. Launched early, after the kernel that writes the parts, and lets the
/// next one start before it waits: what that one reads before it waits, neither of the two may write.
template <int K, class Total>
__global__ void __launch_bounds__(kMergeChannels* kMergeRows)
    merge_parts_kernel(const float* partials, int parts, std::int64_t channels, Total total) {
  __shared__ double shared[K][kMergeWarps][kMergeChannels];
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int mine = thread % kMergeChannels, row = thread / kMergeChannels;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kMergeChannels + mine, at = min(c, channels - 1);
  const auto begun = total.begin(at);
  wait_for_kernel_before();
  float values[kMergeAtOnce][K];
#pragma unroll
  for (int i = 0; i < kMergeAtOnce; ++i)
#pragma unroll
    for (int k = 0; k < K; ++k)
      values[i][k] = partials[(std::int64_t{min(row + i * kMergeRows, parts - 1)} * K + k) * channels + at];
  double sums[K] = {};
#pragma unroll
  for (int i = 0; i < kMergeAtOnce; ++i)
    if (row + i * kMergeRows < parts) total.add(sums, row + i * kMergeRows, values[i]);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    sums[k] = sum_of_channel(sums[k]);
    if (lane < kMergeChannels) shared[k][warp][mine] = sums[k];
  }
  __syncthreads();
  if (warp != 0) return;
  constexpr int kEach = kMergeWarps * kMergeChannels / 32;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    sums[k] = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums[k] += shared[k][row * kEach + i][mine];
    sums[k] = sum_of_channel(sums[k]);
  }
  if (row == 0 && c < channels) total.finish(c, begun, sums);
}

/// Launches it for at most kColumnBlocks parts.
template <int K, class Total>
void merge_parts(const Exec& exec, const float* partials, unsigned parts, std::int64_t channels, const Total& total) {
  launch_early(exec, merge_parts_kernel<K, Total>, dim3(blocks_for(channels, kMergeChannels)),
               dim3(kMergeChannels * kMergeRows), partials, static_cast<int>(parts), channels, total);
}

/// Rows that a thread loads before it uses the first.
inline constexpr int kSumRowsAtOnce = 4;

/// K sums a channel over all rows. terms.start<N>(c) returns what a thread keeps for its N channels; load<N>(offset)
/// reads N elements, and add(kept, loaded, offset, sum) adds their terms to sum[k·N + n]. It loads kSumRowsAtOnce rows
/// before it uses the first, or Terms::kRowsAtOnce. partials (parts, K, channels) are overwritten, or added to where
/// they hold the sums of `earlier` rows.
template <int N, int K, class Terms>
__global__ void __launch_bounds__(kTileThreads, 2)
    row_sums_kernel(std::int64_t rows, std::int64_t channels, Terms terms, float* partials, bool earlier) {
  constexpr int kRows = rows_at_once<Terms, kSumRowsAtOnce>();
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
    if (channel >= channels) return;
    float& part = partials[(std::int64_t{blockIdx.y} * K + i / N) * channels + channel];
    part = earlier ? part + total : total;
  });
}

/// The end of K sums: adds them, and calls finish(c, begun, sums) with a channel's and with what finish.begin(c) read.
template <int K, class Finish>
struct TotalSums {
  Finish with;

  __device__ auto begin(std::int64_t c) const { return with.begin(c); }
  __device__ void add(double (&sums)[K], int, const float (&values)[K]) const {
#pragma unroll
    for (int k = 0; k < K; ++k) sums[k] += values[k];
  }
  template <class Begun>
  __device__ void finish(std::int64_t c, const Begun& begun, const double (&sums)[K]) const {
    with(c, begun, sums);
  }
};

/// A channel's sum is stored, or added to what is there.
struct FinishSum {
  float* to;
  bool accumulate;

  __device__ float begin(std::int64_t c) const { return accumulate ? to[c] : 0.0f; }
  __device__ void operator()(std::int64_t c, float before, const double (&sum)[1]) const {
    to[c] = static_cast<float>(sum[0]) + before;
  }
};

/// Launches it, and returns how many parts it writes: column_parts(rows, channels).
template <int N, int K, class Terms>
unsigned row_sum_parts(const Exec& exec, std::int64_t rows, std::int64_t channels, float* partials, const Terms& terms,
                       bool earlier = false) {
  const auto [grid, block] = column_grid<N>(rows, channels);
  row_sums_kernel<N, K><<<grid, block, 0, stream_of(exec)>>>(rows, channels, terms, partials, earlier);
  check_launch("row_sums_kernel");
  return grid.y;
}

/// Launches it, then merges the parts. `partials` has room for column_parts(rows, channels)·K·channels floats.
template <int N, int K, class Terms, class Finish>
void row_sums(const Exec& exec, std::int64_t rows, std::int64_t channels, float* partials, const Terms& terms,
              const Finish& finish) {
  const unsigned parts = row_sum_parts<N, K>(exec, rows, channels, partials, terms);
  merge_parts<K>(exec, partials, parts, channels, TotalSums<K, Finish>{finish});
}

}  // namespace bantam::kernels::cuda
