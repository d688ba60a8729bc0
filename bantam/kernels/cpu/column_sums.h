// Sums over rows, a channel each, on the CPU: blocks of rows that stay in cache, and partial sums added in part order.
#pragma once

#include "bantam/kernels/cpu/float8.h"
#include "bantam/kernels/partial_sums.h"

namespace bantam::kernels::cpu {

/// Rows [begin, end).
struct RowBlock {
  std::int64_t begin = 0, end = 0;
};

/// V groups of eight channels from c0 on: sums over the block's rows, added to `sums`.
template <int K, int V, class Add>
inline void sum_column_group(RowBlock block, std::int64_t channels, std::int64_t c0, std::int64_t lanes,
                             float* const* sums, Add&& add) {
  Float8 sum[V][K] = {};
  for (std::int64_t r = block.begin; r < block.end; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) add(r * channels + c0 + v * kLanes, c0 + v * kLanes, lanes, sum[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    for (int k = 0; k < K; ++k) {
      float* to = sums[k] + c0 + v * kLanes;
      store_lanes(to, lanes, load_lanes(to, lanes) + sum[v][k]);
    }
  }
}

/// K sums a channel over `rows`, added to sums[k] (channels). add(offset, channel, lanes, sum) adds the terms of up to
/// eight elements to sum[0..K). Rows are summed in blocks first, which keeps rounding errors small and the data in
/// cache.
template <int K, class Add>
void sum_columns(RowBlock rows, std::int64_t channels, float* const* sums, Add&& add) {
  const std::int64_t step = std::clamp<std::int64_t>(8192 / std::max<std::int64_t>(channels, 1), 16, 512);
  for (std::int64_t r = rows.begin; r < rows.end; r += step) {
    const RowBlock block{r, std::min(r + step, rows.end)};
    std::int64_t c = 0;
    for (; c + 4 * kLanes <= channels; c += 4 * kLanes) sum_column_group<K, 4>(block, channels, c, kLanes, sums, add);
    for (; c < channels; c += kLanes) {
      sum_column_group<K, 1>(block, channels, c, std::min(kLanes, channels - c), sums, add);
    }
  }
}

/// to[i] = Σ over parts of partials[part, i], added in part order (before it the old value, where `accumulate`).
inline void add_parts(const float* partials, std::int64_t parts, std::int64_t count, float* to, bool accumulate,
                      int threads) {
  parallel_ranges(count, 2048, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, end - i);
      Float8 sum = accumulate ? load_lanes(to + i, lanes) : Float8{};
      for (std::int64_t part = 0; part < parts; ++part) sum += load_lanes(partials + part * count + i, lanes);
      store_lanes(to + i, lanes, sum);
    }
  });
}

}  // namespace bantam::kernels::cpu
