// Passes over the positions of each sample on CUDA: blocks keep a sample and a column of channels, and walk down its
// positions.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/join/channel_scale.h"

namespace bantam::kernels::cuda {

/// The part of the shape that the kernels need. blockIdx.x counts samples times `columns` columns of blockDim.x packs,
/// blockIdx.y parts of the positions.
struct Places {
  std::int64_t positions, channels;
  unsigned columns;
};

/// A block's sample, and a thread's first channel.
struct Place {
  std::int64_t sample, c;
};

template <int N>
__device__ inline Place place_of(const Places& p) {
  return {blockIdx.x / p.columns, (std::int64_t{blockIdx.x % p.columns} * blockDim.x + threadIdx.x) * N};
}

/// map: `start<N>(factor, c)` returns what a thread keeps for the N channels from c on of its sample, whose first is
/// `factor` among (samples, channels); `load<N>(offset)` reads the N elements at `offset` of (samples, positions,
/// channels), and `apply(kept, loaded, offset)` writes there. kEarly: launched early, after a kernel that writes what
/// `start` reads and not what `load` reads.
template <int N, bool kEarly, class Map>
__global__ void __launch_bounds__(kTileThreads) map_positions_kernel(Places p, std::int64_t rounds, Map map) {
  const auto [sample, c] = place_of<N>(p);
  if (c >= p.channels) return;
  const std::int64_t base = sample * p.positions * p.channels + c, last = p.positions - 1;
  const std::int64_t tile = std::int64_t{kRowsAtOnce} * blockDim.y, first = blockIdx.y * rounds * tile;
  const std::int64_t end = min(p.positions, first + rounds * tile);
  std::int64_t r = first + threadIdx.y;
  decltype(map.template load<N>(base)) loaded[kRowsAtOnce];
  const auto fetch = [&] {
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k)
      loaded[k] = map.template load<N>(base + min(r + k * std::int64_t{blockDim.y}, last) * p.channels);
  };
  if constexpr (kEarly) {
    fetch();
    wait_for_kernel_before();
  }
  const auto kept = map.template start<N>(sample * p.channels + c, c);
  for (bool fetched = kEarly; r < end; r += tile, fetched = false) {
    if (!fetched) fetch();
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const std::int64_t row = r + k * std::int64_t{blockDim.y};
      if (row >= p.positions) break;
      map.apply(kept, loaded[k], base + row * p.channels);
    }
  }
}

/// Where sums go, times `share`: to (sums, samples, channels), or partials (sums, samples, parts, channels) where there
/// is more than one part.
template <class F>
struct PositionSums {
  F* to;
  float* partials;
  float share;
};

/// K sums a channel over one part of a sample's positions: terms.add adds to sum[k·N + n].
template <int N, int K, class Terms, class F>
__global__ void __launch_bounds__(kTileThreads)
    sum_positions_kernel(Places p, std::int64_t factors, Terms terms, PositionSums<F> sums) {
  const auto [sample, c] = place_of<N>(p);
  float sum[K * N] = {};
  if (c < p.channels) {
    const auto kept = terms.template start<N>(sample * p.channels + c, c);
    const std::int64_t base = sample * p.positions * p.channels + c, last = p.positions - 1;
    const std::int64_t tile = std::int64_t{kRowsAtOnce} * blockDim.y;
    for (std::int64_t r = tile * blockIdx.y + threadIdx.y; r < p.positions; r += tile * gridDim.y) {
      decltype(terms.template load<N>(base)) loaded[kRowsAtOnce];
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k)
        loaded[k] = terms.template load<N>(base + min(r + k * std::int64_t{blockDim.y}, last) * p.channels);
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) {
        const std::int64_t row = r + k * std::int64_t{blockDim.y};
        if (row < p.positions) terms.add(kept, loaded[k], base + row * p.channels, sum);
      }
    }
  }
  sum_over_block_rows(sum, [&](int i, int lane, float total) {
    const std::int64_t channel = (std::int64_t{blockIdx.x % p.columns} * blockDim.x + lane) * N + i % N;
    if (channel >= p.channels) return;
    const std::int64_t of = i / N * factors + sample * p.channels;
    if (sums.partials == nullptr)
      sums.to[of + channel] = from_float<F>(total * sums.share);
    else
      sums.partials[of * gridDim.y + blockIdx.y * p.channels + channel] = total;
  });
}

/// to[i, c] = share·Σ partials[i, ·, c], in part order.
template <class F>
__global__ void add_position_parts_kernel(PositionSums<F> sums, std::int64_t count, std::int64_t channels,
                                          std::int64_t parts) {
  for (std::int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const std::int64_t row = i / channels, c = i % channels;
    float sum = 0;
#pragma unroll 8
    for (std::int64_t part = 0; part < parts; ++part) sum += sums.partials[(row * parts + part) * channels + c];
    sums.to[i] = from_float<F>(sum * sums.share);
  }
}

template <int N>
Places places(const ChannelScaleShape& s, const dim3& block) {
  return {s.positions, s.channels, blocks_for(s.channels / N, block.x)};
}

template <int N, bool kEarly = false, class Map>
void map_positions(const Exec& exec, const ChannelScaleShape& s, const Map& map) {
  const dim3 block = tile_block(s.channels / N);
  const Places p = places<N>(s, block);
  const std::int64_t wide = s.samples * p.columns;
  const std::int64_t tiles = blocks_for(s.positions, std::int64_t{kRowsAtOnce} * block.y);
  const std::int64_t most = std::clamp<std::int64_t>(kMapBlocks / wide, 1, kMaxGridY);
  const std::int64_t rounds = blocks_for(tiles, most);
  const dim3 grid(static_cast<unsigned>(wide), blocks_for(tiles, rounds));
  if constexpr (kEarly) {
    launch_early(exec, map_positions_kernel<N, true, Map>, grid, block, p, rounds, map);
  } else {
    map_positions_kernel<N, false><<<grid, block, 0, stream_of(exec)>>>(p, rounds, map);
    check_launch("map_positions_kernel");
  }
}

template <int N, int K = 1, class Terms, class F>
void sum_positions(const Exec& exec, const ChannelScaleShape& s, std::int64_t parts, const Terms& terms,
                   const PositionSums<F>& sums) {
  const dim3 block = tile_block(s.channels / N);
  const Places p = places<N>(s, block);
  const dim3 grid(static_cast<unsigned>(s.samples * p.columns), static_cast<unsigned>(parts));
  sum_positions_kernel<N, K><<<grid, block, 0, stream_of(exec)>>>(p, s.factors(), terms, sums);
  check_launch("sum_positions_kernel");
  if (sums.partials == nullptr) return;
  const std::int64_t count = K * s.factors();
  add_position_parts_kernel<<<stride_blocks(count), kMapThreads, 0, stream_of(exec)>>>(sums, count, s.channels, parts);
  check_launch("add_position_parts_kernel");
}

}  // namespace bantam::kernels::cuda
