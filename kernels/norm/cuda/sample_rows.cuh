// Launches over images that are normalised each by itself: every sample is an array of rows of channels, which blocks
// read whole, whatever the widths of the norm's groups are.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/norm/group_norm_parts.h"

namespace bantam::kernels::cuda {

/// A group norm's shape, and the parts that a sample's positions are cut into.
struct SampleRows {
  std::int64_t samples, positions, channels;
  unsigned groups, width, parts;  ///< width: channels of a group

  explicit SampleRows(const GroupNormShape& s)
      : samples(s.samples),
        positions(s.positions),
        channels(s.channels),
        groups(static_cast<unsigned>(s.groups)),
        width(static_cast<unsigned>(s.group_channels())),
        parts(static_cast<unsigned>(position_parts(s, DeviceKind::cuda))) {}

  __device__ std::int64_t offset(std::int64_t sample) const { return sample * positions * channels; }
  /// Place of a channel's group in (samples, groups).
  __device__ std::int64_t group(std::int64_t sample, std::int64_t c) const {
    return sample * groups + static_cast<unsigned>(c) / width;
  }
  /// A part's sums or moments of a sample, in (samples, parts, 2, channels).
  __device__ std::int64_t partials(std::int64_t sample, unsigned part) const {
    return (sample * parts + part) * 2 * channels;
  }
  /// Calls visit(n, place in (samples, groups)) for N channels from c on.
  template <int N, class Visit>
  __device__ void for_groups_of(std::int64_t sample, std::int64_t c, Visit&& visit) const {
    unsigned g = static_cast<unsigned>(c) / width, place = static_cast<unsigned>(c) - g * width;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      visit(n, sample * groups + g);
      if (++place == width) {
        place = 0;
        ++g;
      }
    }
  }
};

/// A map over the rows of samples (map_rows_kernel): blockIdx.z counts them down from `last_sample`, so that a map
/// begins with what the sums before it read last, which the L2 cache still holds.
struct OfSample {
  std::int64_t last_sample = 0;

  __device__ std::int64_t sample() const { return last_sample - blockIdx.z; }
};

/// A launch over (columns of channels, parts, samples).
template <int N>
ColumnGrid sample_grid(const SampleRows& rows) {
  const std::int64_t packs = rows.channels / N;
  const dim3 block = tile_block(std::min<std::int64_t>(packs, kColumnChannels / N));
  const auto samples = static_cast<unsigned>(std::min(rows.samples, kMaxGridY));
  return {dim3(blocks_for(packs, block.x), rows.parts, samples), block};
}

/// Runs `map` over the rows of every sample.
template <int N, class Map>
void map_samples(const Exec& exec, const SampleRows& rows, Map map) {
  const std::int64_t packs = rows.channels / N;
  const dim3 block = tile_block(packs);
  const unsigned columns = blocks_for(packs, block.x);
  const std::int64_t tiles = blocks_for(rows.positions, std::int64_t{kRowsAtOnce} * block.y);
  for (std::int64_t left = rows.samples; left > 0; left -= kMaxGridY) {
    const std::int64_t samples = std::min(left, kMaxGridY);
    const std::int64_t most = std::clamp<std::int64_t>(kMapBlocks / (columns * samples), 1, kMaxGridY);
    std::int64_t rounds = blocks_for(tiles, most);
    if (tiles * columns * samples >= Map::kRounds * kLeastMapBlocks) rounds = std::max(rounds, Map::kRounds);
    const dim3 grid(columns, blocks_for(tiles, rounds), static_cast<unsigned>(samples));
    map.last_sample = left - 1;
    map_rows_kernel<N, false><<<grid, block, 0, stream_of(exec)>>>(rows.positions, rows.channels, rounds, map);
    check_launch("map_rows_kernel");
  }
}

}  // namespace bantam::kernels::cuda
