// Sums over rows, a channel each, on the CPU: blocks of rows that stay in cache, and partial sums added in part order.
#pragma once

#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/common/partial_sums.h"

namespace bantam::kernels::cpu {

/// Rows [begin, end).
struct RowBlock {
  std::int64_t begin = 0, end = 0;
};

/// Most channels whose sums are kept on the stack.
inline constexpr std::int64_t kSumChunk = 1024;

/// K sums a channel of up to kSumChunk channels from c0 on over a block of rows, to `sums`: K groups of eight for every
/// eight channels. A few whole rows at a time, so that memory is read from its start to its end.
template <int K, class Add>
inline void sum_column_chunk(RowBlock block, std::int64_t channels, std::int64_t c0, std::int64_t chunk, float* sums,
                             Add&& add) {
  constexpr std::int64_t kRows = 4;
  for (std::int64_t first = block.begin; first < block.end; first += kRows) {
    const std::int64_t last = std::min(first + kRows, block.end);
    for (std::int64_t c = 0; c < chunk; c += kLanes) {
      const std::int64_t lanes = std::min(kLanes, chunk - c), at = c0 + c;
      Float8 sum[K] = {};
      if (lanes == kLanes) {
        for (std::int64_t r = first; r < last; ++r) add(r * channels + at, at, kLanes, sum);
      } else {
        for (std::int64_t r = first; r < last; ++r) add(r * channels + at, at, lanes, sum);
      }
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k) {
        float* to = sums + c * K + k * kLanes;
        store8(to, first == block.begin ? sum[k] : load8(to) + sum[k]);
      }
    }
  }
}

/// Rows of the blocks that `sum_columns` sums first: whoever begins a call after whole blocks of the one before gets
/// the sums, to the bit, that one call over all rows gets.
inline std::int64_t sum_block_rows(std::int64_t channels) {
  return std::clamp<std::int64_t>(8192 / std::max<std::int64_t>(channels, 1), 16, 512);
}

/// K sums a channel over `rows`, added to sums[k] (channels). add(offset, channel, lanes, sum) adds the terms of up to
/// eight elements to sum[0..K). Rows are summed in blocks first, which keeps rounding errors small.
template <int K, class Add>
void sum_columns(RowBlock rows, std::int64_t channels, float* const* sums, Add&& add) {
  float partial[K * kSumChunk];
  const std::int64_t step = sum_block_rows(channels);
  for (std::int64_t r = rows.begin; r < rows.end; r += step) {
    for (std::int64_t c0 = 0; c0 < channels; c0 += kSumChunk) {
      const std::int64_t chunk = std::min(kSumChunk, channels - c0);
      sum_column_chunk<K>({r, std::min(r + step, rows.end)}, channels, c0, chunk, partial, add);
      for (std::int64_t c = 0; c < chunk; c += kLanes) {
        const std::int64_t lanes = std::min(kLanes, chunk - c);
        for (int k = 0; k < K; ++k) {
          float* to = sums[k] + c0 + c;
          store_lanes(to, lanes, load_lanes(to, lanes) + load8(partial + c * K + k * kLanes));
        }
      }
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
