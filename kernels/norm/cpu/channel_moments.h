// Mean and sum of squared differences of every channel over rows, on the CPU: blocks of rows that stay in cache, two
// passes over each, merged in order.
// Source of the merge: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".
#pragma once

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels::cpu {

/// The values that a part's moments are gathered from, all relative to the first row (`origin`), so that a
/// mean that is large beside the standard deviation costs no digits.
template <class T>
struct Samples {
  const T* x;
  const float* origin;  // (channels)
  BatchNormShape shape;
};

/// Merges the moments of one block of rows, V groups of eight channels from c0 on, into mean and m2 (sum of squared
/// differences from the mean) of the `seen` rows before it. `sums`: the block's, of those channels.
template <int V, class T>
void add_block_moments(const Samples<T>& samples, RowBlock block, std::int64_t seen, std::int64_t c0,
                       std::int64_t lanes, const float* sums, float* mean, float* m2) {
  const BatchNormShape& shape = samples.shape;
  Float8 origin[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) origin[v] = load_lanes(samples.origin + c0 + v * kLanes, lanes);
  const auto at = [&](std::int64_t r, int v) __attribute__((always_inline)) {
    const std::int64_t offset = r * shape.channels + c0 + v * kLanes;
    return load_lanes(samples.x + offset, lanes, shape.rows * shape.channels - offset) - origin[v];
  };
  const auto rows = static_cast<float>(block.end - block.begin);
  const float total = static_cast<float>(seen) + rows;
  Float8 block_mean[V], squares[V] = {};
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) block_mean[v] = load8(sums + v * kLanes) / rows;
  for (std::int64_t r = block.begin; r < block.end; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const Float8 difference = at(r, v) - block_mean[v];
      squares[v] += difference * difference;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    const std::int64_t c = c0 + v * kLanes;
    const Float8 old_mean = load_lanes(mean + c, lanes), delta = block_mean[v] - old_mean;
    store_lanes(mean + c, lanes, old_mean + delta * (rows / total));
    const Float8 between = delta * delta * (static_cast<float>(seen) * rows / total);
    store_lanes(m2 + c, lanes, load_lanes(m2 + c, lanes) + squares[v] + between);
  }
}

/// Σ (x - origin) over a block of rows, a channel from c0 on each. The block then lies in the first-level cache.
template <class T>
void sum_block(const Samples<T>& samples, RowBlock block, std::int64_t c0, std::int64_t count, float* sums) {
  const std::int64_t elements = samples.shape.rows * samples.shape.channels;
  sum_column_chunk<1>(block, samples.shape.channels, c0, count, sums,
                      [elements, x = samples.x, origin = samples.origin](std::int64_t at, std::int64_t c,
                                                                         std::int64_t lanes, Float8* sum) {
                        sum[0] += load_lanes(x + at, lanes, elements - at) - load_lanes(origin + c, lanes);
                      });
}

/// mean (relative to the origin) and m2 (channels) of `rows`.
template <class T>
void part_moments(const Samples<T>& samples, RowBlock rows, float* mean, float* m2) {
  const BatchNormShape& shape = samples.shape;
  std::fill(mean, mean + shape.channels, 0.0f);
  std::fill(m2, m2 + shape.channels, 0.0f);
  const std::int64_t step = std::clamp<std::int64_t>(4096 / shape.channels, 16, 512);
  float sums[kSumChunk];
  for (std::int64_t r = rows.begin; r < rows.end; r += step) {
    const RowBlock block{r, std::min(r + step, rows.end)};
    const std::int64_t seen = r - rows.begin;
    for (std::int64_t c0 = 0; c0 < shape.channels; c0 += kSumChunk) {
      const std::int64_t end = std::min(c0 + kSumChunk, shape.channels);
      sum_block(samples, block, c0, end - c0, sums);
      std::int64_t c = c0;
      for (; c + 4 * kLanes <= end; c += 4 * kLanes) {
        add_block_moments<4>(samples, block, seen, c, kLanes, sums + c - c0, mean, m2);
      }
      for (; c < end; c += kLanes) {
        add_block_moments<1>(samples, block, seen, c, std::min(kLanes, end - c), sums + c - c0, mean, m2);
      }
    }
  }
}

}  // namespace bantam::kernels::cpu
