// Shared memory of the wgmma kernel: weights that stay, a ring of stages of x that tensor copies fill, results on their
// way out, and the barriers between producers and consumers of stages.
#pragma once

#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/pointwise/cuda/shared_norm.cuh"
#include "bantam/kernels/pointwise/warpgroup_parts.h"

namespace bantam::kernels::cuda {

/// The arguments that a launch's blocks receive besides the tensors.
struct WarpgroupCut {
  std::int64_t rows;  ///< of y
  int in, out;        ///< columns of x and y
  int depths;         ///< of 64 channels
  int tiles, tile_rows, column_blocks, stages;
  bool in_turn;        ///< whether warpgroups multiply strictly in turn
  int step_b, step_a;  ///< from a tile's first row of x to the next one's, as coordinates
  float* partials;     ///< (parts, 3, out): origin, mean relative to it, Σ of squared differences; null: not wanted
  float* counts;       ///< (parts)
  AffineSource norm;   ///< of x; not read by kernels without a norm of x
  Clamp clamp;         ///< after it
};

/// A block's shared memory: weights, the warpgroups' results, stages of x, barriers. Rows have 128 bytes, swizzled.
template <int kColumns>
struct WarpgroupTile {
  static constexpr int kRows = static_cast<int>(WarpgroupProduct::kTileRows), kDepth = 64;
  static constexpr int kWarpgroups = static_cast<int>(WarpgroupProduct::kWarpgroups);
  /// Registers of a thread that multiplies, and of one that copies: together no more than the launch allocates, 168
  /// each.
  static constexpr int kTaken = 232, kKept = 40;
  static constexpr int kThreads = 128 * kWarpgroups + 128;  ///< the last warpgroup starts the copies
  static constexpr int kStageBytes = kRows * 128, kWeightBytes = kColumns * 128,
                       kResultBytes = kColumns / 64 * kRows * 128;
  static constexpr int kMostStages = 16, kBarrierBytes = (2 * kMostStages + 8) * 8, kAlignment = 1024;

  static constexpr int bytes_without_stages(int depths, int norm_channels) {
    return depths * kWeightBytes + kWarpgroups * kResultBytes + kBarrierBytes + kAlignment +
           SharedNorm::kVectors * norm_channels * static_cast<int>(sizeof(float));
  }
};

/// Where a block's arrays lie in shared memory.
template <int kColumns>
struct WarpgroupShared {
  using Tile = WarpgroupTile<kColumns>;
  std::uint32_t weights, results, x, barriers, norm;
  int stages;

  __device__ WarpgroupShared(std::uint32_t base, const WarpgroupCut& cut)
      : weights((base + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment),
        results(weights + cut.depths * Tile::kWeightBytes),
        x(results + Tile::kWarpgroups * Tile::kResultBytes),
        barriers(x + cut.stages * Tile::kStageBytes),
        norm(barriers + Tile::kBarrierBytes),
        stages(cut.stages) {}
  __device__ SharedBarrier weights_there() const { return {barriers}; }
  __device__ SharedBarrier turn_of(int group) const { return {barriers + 8 * (1 + group)}; }
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * (1 + Tile::kWarpgroups + stage)}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (1 + Tile::kWarpgroups + stages + stage)}; }
  __device__ void set_up() const {
    weights_there().init(1);
    for (int i = 0; i < Tile::kWarpgroups; ++i) turn_of(i).init(4);
    for (int i = 0; i < stages; ++i) {
      full(i).init(1);
      empty(i).init(4);  // a warpgroup's warps
    }
    publish_barriers();
  }
};

/// Brings the weights, then all stages of the block's tiles in turn. One thread.
template <int kColumns>
__device__ inline void copy_stages(const CUtensorMap& x, const CUtensorMap& w, const WarpgroupCut& cut,
                                   const WarpgroupShared<kColumns>& shared, int first_column, int first, int step) {
  using Tile = WarpgroupTile<kColumns>;
  shared.weights_there().arrive_expecting(cut.depths * Tile::kWeightBytes);
  for (int d = 0; d < cut.depths; ++d)
    load_box(shared.weights + d * Tile::kWeightBytes, w, d * Tile::kDepth, first_column, 0, shared.weights_there());
  RingPlace to;
  for (int tile = first; tile < cut.tiles; tile += step)
    for (int d = 0; d < cut.depths; ++d, to.next(1, cut.stages)) {
      shared.empty(to.stage).wait(to.parity ^ 1);
      shared.full(to.stage).arrive_expecting(cut.tile_rows * 128);
      load_box(shared.x + to.stage * Tile::kStageBytes, x, d * Tile::kDepth, tile * cut.step_b, tile * cut.step_a,
               shared.full(to.stage));
    }
}

}  // namespace bantam::kernels::cuda
