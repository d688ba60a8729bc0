// relu(norm(ã·wᵀ) + residual) with wgmma: weights stay in shared memory, tensor copies bring stages of ã and tiles of
// the residual, and two warpgroups alternate: one multiplies while the other applies norm, residual, relu and mask to
// its sums. The result lies in the residual's place in shared memory, and a tensor copy stores it from there.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/norm/cuda/batch_norm_affine.cuh"

namespace bantam::kernels::cuda {

/// The arguments that a launch's blocks receive besides the tensors.
struct ExpandSumCut {
  std::int64_t rows;
  int out;
  int depths;  ///< of 64 channels of ã
  int tiles, column_blocks, stages;
  int buffers;         ///< tiles of the residual that a warpgroup has in shared memory
  bool in_turn;        ///< whether warpgroups multiply strictly in turn
  AffineSource norm;   ///< of ã·wᵀ
  AffineSource other;  ///< of the residual; not read by kernels for a plain one
  std::uint8_t* mask;  ///< (rows, out / 8): bits of y > 0; null: not wanted
};

/// A block's shared memory: weights, tiles that hold the residual before and y after, stages of ã, vectors, barriers.
/// Rows of boxes have 128 bytes, swizzled.
struct ExpandSumTile {
  static constexpr int kColumns = 128, kRows = 64, kDepth = 64, kWarpgroups = 2;
  /// Registers of a thread that multiplies, and of one that copies: together no more than the launch allocates, 168
  /// each.
  static constexpr int kTaken = 232, kKept = 40;
  static constexpr int kThreads = 128 * kWarpgroups + 128;  ///< the last warpgroup starts the copies
  static constexpr int kBoxBytes = kRows * 128, kStageBytes = kBoxBytes, kWeightBytes = kColumns * 128,
                       kTileBytes = kColumns / 64 * kBoxBytes;
  static constexpr int kMostStages = 16, kMostBuffers = 3, kAlignment = 1024;
  static constexpr int kPairBytes = kColumns * 8, kVectorBytes = kPairBytes + kColumns * 4;
  /// Barriers before those of stages, before those of tile buffers, and all.
  static constexpr int kBeforeStages = 1 + kWarpgroups, kBeforeBuffers = kBeforeStages + 2 * kMostStages,
                       kBarriers = kBeforeBuffers + 2 * kWarpgroups * kMostBuffers;

  static constexpr int bytes_without_stages(int depths, int buffers) {
    return depths * kWeightBytes + kWarpgroups * buffers * kTileBytes + kVectorBytes + kBarriers * 8 + kAlignment;
  }
};

/// Where a block's arrays lie in shared memory.
struct ExpandSumShared {
  using Tile = ExpandSumTile;
  std::uint32_t weights, tiles, x, vectors, barriers;
  int buffers;

  __device__ ExpandSumShared(std::uint32_t base, const ExpandSumCut& cut)
      : weights((base + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment),
        tiles(weights + cut.depths * Tile::kWeightBytes),
        x(tiles + Tile::kWarpgroups * cut.buffers * Tile::kTileBytes),
        vectors(x + cut.stages * Tile::kStageBytes),
        barriers(vectors + Tile::kVectorBytes),
        buffers(cut.buffers) {}
  __device__ SharedBarrier at(int i) const { return {barriers + 8 * i}; }
  __device__ SharedBarrier weights_there() const { return at(0); }
  __device__ SharedBarrier turn_of(int group) const { return at(1 + group); }
  __device__ SharedBarrier full(int stage) const { return at(Tile::kBeforeStages + stage); }
  __device__ SharedBarrier empty(int stage) const { return at(Tile::kBeforeStages + Tile::kMostStages + stage); }
  /// The residual's tile has come.
  __device__ SharedBarrier came(int group, int buffer) const {
    return at(Tile::kBeforeBuffers + group * Tile::kMostBuffers + buffer);
  }
  /// The result lies in its place.
  __device__ SharedBarrier ready(int group, int buffer) const { return came(Tile::kWarpgroups + group, buffer); }
  __device__ std::uint32_t tile(int group, int buffer) const {
    return tiles + (group * buffers + buffer) * Tile::kTileBytes;
  }
  __device__ void set_up() const {
    constexpr int kWarps = 4;  // of a warpgroup
    weights_there().init(1);
    for (int g = 0; g < Tile::kWarpgroups; ++g) {
      turn_of(g).init(kWarps);
      for (int b = 0; b < Tile::kMostBuffers; ++b) came(g, b).init(1), ready(g, b).init(kWarps);
    }
    for (int i = 0; i < Tile::kMostStages; ++i) full(i).init(1), empty(i).init(kWarps);
    publish_barriers();
  }
};

/// The norms as factors k of c3 and kr of a residual with a norm, and one constant b: y = relu(k·c3 + b + kr·residual).
/// (k, b) of each column; then kr in the order in which a lane reads it, columns 2t, 2t + 1, 2t + 8 and 2t + 9 of each
/// sixteen side by side. One column a thread.
template <bool kNormedResidual>
__device__ inline void fill_vectors(float* vectors, const ExpandSumCut& cut, int first_column) {
  constexpr int kColumns = ExpandSumTile::kColumns;
  const int c = static_cast<int>(threadIdx.x);
  if (c >= kColumns) return;
  const Affine<1> norm = cut.norm.load<1>(first_column + c);
  float b = fmaf(-norm.mean[0], norm.factor[0], norm.shift[0]);
  if constexpr (kNormedResidual) {
    const Affine<1> other = cut.other.load<1>(first_column + c);
    b += fmaf(-other.mean[0], other.factor[0], other.shift[0]);
    vectors[2 * kColumns + c / 16 * 16 + c % 8 / 2 * 4 + c % 16 / 8 * 2 + c % 2] = other.factor[0];
  }
  vectors[2 * c] = norm.factor[0];
  vectors[2 * c + 1] = b;
}

/// Bits of a warpgroup's results, gathered while they are made: lane 4g + t sees two neighbouring columns of each byte
/// of rows g and g + 8, and ends with bytes 4t to 4t + 3 of both.
struct MaskBits {
  std::uint32_t pairs[2][2] = {};

  /// `set`: 0xffff for each element above 0, of columns 8j + 2t and 8j + 2t + 1; upper: row g + 8.
  __device__ void add(int j, int upper, std::uint32_t set) {
    const int slot = j / 4, byte = j % 4, at = byte % 2 * 8 + slot * 2;
    pairs[upper][byte / 2] |= set & (1u << at | 1u << (17 + at));
  }
  /// Bytes of slot s go to lane 4g + s: a transposition of four by four pairs of bits, by two exchanges.
  __device__ std::uint32_t word(int upper) const {
    const std::uint32_t low = pairs[upper][0] | pairs[upper][0] >> 16, high = pairs[upper][1] | pairs[upper][1] >> 16;
    std::uint32_t w = __byte_perm(low, high, 0x5410);
    const std::uint32_t lane = threadIdx.x;
    std::uint32_t other = __shfl_xor_sync(0xffffffffu, w, 1);
    w = lane & 1 ? (w & 0xccccccccu) | (other >> 2 & 0x33333333u) : (w & 0x33333333u) | (other << 2 & 0xccccccccu);
    other = __shfl_xor_sync(0xffffffffu, w, 2);
    return lane & 2 ? (w & 0xf0f0f0f0u) | (other >> 4 & 0x0f0f0f0fu) : (w & 0x0f0f0f0fu) | (other << 4 & 0xf0f0f0f0u);
  }
};

/// y = relu(k·c3 + b + kr·residual) in the place of the residual, rounded once; and the mask.
template <class T, bool kNormedResidual>
__device__ inline void finish_tile(const float (&sums)[ExpandSumTile::kColumns / 2], std::uint32_t tile,
                                   std::uint32_t vectors, const ExpandSumCut& cut, std::int64_t first_row,
                                   int first_column) {
  using Tile = ExpandSumTile;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
  const int here = warp * 16 + lane % 16;
  MaskBits bits;
#pragma unroll
  for (int i = 0; i < Tile::kColumns / 16; ++i) {
    const std::uint32_t at = tile + place_in_boxes(here, 16 * i + lane / 16 * 8);
    std::uint32_t residual[4], y[4];
    load_matrices(residual, at);
    const float4 left = load_shared_float4(vectors + (16 * i + lane % 4 * 2) * 8),
                 right = load_shared_float4(vectors + (16 * i + 8 + lane % 4 * 2) * 8);
    float4 factors;
    if constexpr (kNormedResidual)
      factors = load_shared_float4(vectors + Tile::kPairBytes + (16 * i + lane % 4 * 4) * 4);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float4 v = q < 2 ? left : right;
      float r[2];
      unpack<2>(*reinterpret_cast<const Pack<T, 2>*>(&residual[q]), r);
      float low = fmaf(sums[8 * i + 2 * q], v.x, v.y), high = fmaf(sums[8 * i + 2 * q + 1], v.z, v.w);
      if constexpr (kNormedResidual) {
        low = fmaf(r[0], q < 2 ? factors.x : factors.z, low);
        high = fmaf(r[1], q < 2 ? factors.y : factors.w, high);
      } else {
        low += r[0];
        high += r[1];
      }
      const auto pair = HalfPair<T>::pack_relu(low, high);
      y[q] = bits_of(pair);
      bits.add(2 * i + q / 2, q % 2, mask_greater(pair, HalfPair<T>::of(0)));
    }
    store_matrices(at, y);
  }
  publish_to_copies();
  if (cut.mask == nullptr) return;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const std::int64_t row = first_row + warp * 16 + lane / 4 + 8 * upper;
    const std::uint32_t word = bits.word(upper);
    if (row < cut.rows)
      reinterpret_cast<std::uint32_t*>(cut.mask + row * (cut.out / 8) + first_column / 8)[lane % 4] = word;
  }
}

/// Brings the weights, then all stages of the block's tiles in turn. One thread.
__device__ inline void copy_stages(const CUtensorMap& centred, const CUtensorMap& w, const ExpandSumCut& cut,
                                   const ExpandSumShared& shared, int first_column, int first, int step) {
  using Tile = ExpandSumTile;
  shared.weights_there().arrive_expecting(cut.depths * Tile::kWeightBytes);
  for (int d = 0; d < cut.depths; ++d)
    load_box(shared.weights + d * Tile::kWeightBytes, w, d * Tile::kDepth, first_column, shared.weights_there());
  RingPlace to;
  for (int tile = first; tile < cut.tiles; tile += step)
    for (int d = 0; d < cut.depths; ++d, to.next(1, cut.stages)) {
      shared.empty(to.stage).wait(to.parity ^ 1);
      shared.full(to.stage).arrive_expecting(Tile::kStageBytes);
      load_box(shared.x + to.stage * Tile::kStageBytes, centred, d * Tile::kDepth, tile * Tile::kRows,
               shared.full(to.stage));
    }
}

/// Brings the residual's tiles of a warpgroup, whose first is `part`, and stores the results that take their place.
/// One thread. A tile is loaded before it is stored, by the same thread, so y may be the residual.
__device__ inline void copy_tiles(const CUtensorMap& residual, const CUtensorMap& y, const ExpandSumCut& cut,
                                  const ExpandSumShared& shared, int group, int first_column, int part, int parts) {
  using Tile = ExpandSumTile;
  const auto bring = [&](int tile, int buffer) {
    shared.came(group, buffer).arrive_expecting(Tile::kTileBytes);
    for (int c = 0; c < Tile::kColumns; c += 64)
      load_box(shared.tile(group, buffer) + c / 64 * Tile::kBoxBytes, residual, first_column + c, tile * Tile::kRows,
               shared.came(group, buffer));
  };
  for (int b = 0; b < cut.buffers; ++b)
    if (part + b * parts < cut.tiles) bring(part + b * parts, b);
  RingPlace at;
  for (int tile = part; tile < cut.tiles; tile += parts, at.next(1, cut.buffers)) {
    shared.ready(group, at.stage).wait(at.parity);
    for (int c = 0; c < Tile::kColumns; c += 64)
      store_box(y, first_column + c, tile * Tile::kRows, shared.tile(group, at.stage) + c / 64 * Tile::kBoxBytes);
    commit_stores();
    wait_for_stores_to_read();
    if (tile + cut.buffers * parts < cut.tiles) bring(tile + cut.buffers * parts, at.stage);
  }
}

/// Block b computes column block b % column_blocks of tiles b / column_blocks, and so on; its warpgroups alternate. The
/// last warpgroup's warp 0 brings weights and stages of ã, its warps 1 and 2 copy a warpgroup's tiles each.
template <class T, bool kNormedResidual>
__global__ void __launch_bounds__(ExpandSumTile::kThreads, 1)
    warpgroup_expand_sum_kernel(const __grid_constant__ CUtensorMap centred, const __grid_constant__ CUtensorMap w,
                                const __grid_constant__ CUtensorMap residual, const __grid_constant__ CUtensorMap y,
                                const ExpandSumCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = ExpandSumTile;
  extern __shared__ __align__(128) char memory[];
  const ExpandSumShared shared(shared_address(memory), cut);
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * Tile::kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / cut.column_blocks, parts = Tile::kWarpgroups * step;
  if (threadIdx.x == 0) shared.set_up();
  wait_then_let_next_start();  // all blocks run at once, so the next kernel delays none of them
  fill_vectors<kNormedResidual>(reinterpret_cast<float*>(memory + (shared.vectors - shared_address(memory))), cut,
                                first_column);
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == Tile::kWarpgroups) {
    keep_registers<Tile::kKept>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp > Tile::kWarpgroups) return;
    if (warp == 0)
      copy_stages(centred, w, cut, shared, first_column, first, step);
    else
      copy_tiles(residual, y, cut, shared, warp - 1, first_column, first + (warp - 1) * step, parts);
    return;
  }
  take_registers<Tile::kTaken>();
  RingPlace from, at;
  from.next(group * cut.depths, cut.stages);
  Turns turns{group};
  shared.weights_there().wait(0);
  for (int tile = first + group * step; tile < cut.tiles; tile += parts, at.next(1, cut.buffers)) {
    float sums[Tile::kColumns / 2];
    multiply_tile<T>(sums, cut, shared, NoPrologue{}, from, turns);
    from.next((Tile::kWarpgroups - 1) * cut.depths, cut.stages);
    shared.came(group, at.stage).wait(at.parity);
    finish_tile<T, kNormedResidual>(sums, shared.tile(group, at.stage), shared.vectors, cut,
                                    std::int64_t{tile} * Tile::kRows, first_column);
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.ready(group, at.stage).arrive();
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

}  // namespace bantam::kernels::cuda
