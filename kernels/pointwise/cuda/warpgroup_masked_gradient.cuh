// dz = mask ⊙ (dy·w + addend) and Σ dz with wgmma: 128 columns of weights stay in shared memory, tensor copies bring
// stages of dy and tiles of the addend, and two warpgroups alternate: one multiplies while the other combines its sums
// with the addend, in whose place dz is written, and adds up its columns.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/pointwise/masked_gradient_parts.h"

namespace bantam::kernels::cuda {

/// The arguments that a launch's blocks receive besides the tensors.
struct MaskedCut {
  std::int64_t rows;
  int columns;  ///< of dz
  int depths;   ///< of 64 channels of dy
  int tiles, column_blocks, stages;
  bool in_turn;              ///< whether warpgroups multiply strictly in turn
  const std::uint8_t* mask;  ///< of (rows, columns)
  float* partials;           ///< (parts, columns)
};

/// A block's shared memory: weights, tiles that hold the addend and then dz, stages of dy, barriers. Rows have 128
/// bytes, swizzled.
template <int kBuffers>
struct MaskedTile {
  static constexpr int kRows = static_cast<int>(MaskedGradientTiles::kRows), kDepth = 64;
  static constexpr int kColumns = static_cast<int>(MaskedGradientTiles::kColumns);
  /// Registers of a thread that multiplies, and of one that copies: together no more than the launch allocates, 168
  /// each.
  static constexpr int kTaken = 232, kKept = 40;
  static constexpr int kThreads = 384;  ///< the last warpgroup starts the copies
  static constexpr int kBoxBytes = kRows * 128, kStageBytes = kBoxBytes, kWeightBytes = kColumns * 128,
                       kTileBytes = kColumns / 64 * kBoxBytes;
  static constexpr int kMostStages = 16, kBarriers = 3 + 2 * kMostStages + 6 * kBuffers, kAlignment = 1024;

  static constexpr int bytes_without_stages(int depths) {
    return depths * kWeightBytes + 2 * kBuffers * kTileBytes + kBarriers * 8 + kAlignment;
  }
};

/// Where a block's arrays lie in shared memory.
template <int kBuffers>
struct MaskedShared {
  using Tile = MaskedTile<kBuffers>;
  std::uint32_t weights, tiles, dy, barriers;

  __device__ MaskedShared(std::uint32_t base, const MaskedCut& cut)
      : weights((base + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment),
        tiles(weights + cut.depths * Tile::kWeightBytes),
        dy(tiles + 2 * kBuffers * Tile::kTileBytes),
        barriers(dy + cut.stages * Tile::kStageBytes) {}
  __device__ SharedBarrier weights_there() const { return {barriers}; }
  __device__ SharedBarrier turn_of(int group) const { return {barriers + 8 * (1 + group)}; }
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * (3 + stage)}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (3 + Tile::kMostStages + stage)}; }
  /// The addend lies in a warpgroup's tile; dz lies there in its place; the warpgroup has read dz for its sums.
  __device__ SharedBarrier came(int group, int buffer) const { return of_tile(0, group, buffer); }
  __device__ SharedBarrier ready(int group, int buffer) const { return of_tile(1, group, buffer); }
  __device__ SharedBarrier summed(int group, int buffer) const { return of_tile(2, group, buffer); }
  __device__ std::uint32_t tile(int group, int buffer) const {
    return tiles + (group * kBuffers + buffer) * Tile::kTileBytes;
  }
  __device__ void set_up(int stages) const {
    weights_there().init(1);
    for (int group = 0; group < 2; ++group) {
      turn_of(group).init(4);  // a warpgroup's warps
      for (int b = 0; b < kBuffers; ++b) came(group, b).init(1), ready(group, b).init(1), summed(group, b).init(4);
    }
    for (int i = 0; i < stages; ++i) full(i).init(1), empty(i).init(4);
    publish_barriers();
  }

 private:
  __device__ SharedBarrier of_tile(int kind, int group, int buffer) const {
    return {barriers + 8 * (3 + 2 * Tile::kMostStages + (kind * 2 + group) * kBuffers + buffer)};
  }
};

/// The mask's bits of a thread's two rows, g and g + 8 of its warp's, and 128 columns. Once shifted, those of columns
/// 8j + 2t and 8j + 2t + 1 are bits 8·(j % 4) and the next of word j / 4.
struct MaskRows {
  std::uint32_t words[2][4];

  __device__ void load(const MaskedCut& cut, std::int64_t first_row, int first_column) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const std::int64_t row = first_row + warp * 16 + lane / 4 + 8 * upper;
      std::uint32_t(&w)[4] = words[upper];
      w[0] = w[1] = w[2] = w[3] = 0;
      if (row < cut.rows)
        asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(cut.mask + row * (cut.columns / 8) + first_column / 8)
                     : "memory");
    }
  }
  __device__ void shift() {
    const int by = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
#pragma unroll
      for (int i = 0; i < 4; ++i) words[upper][i] >>= by;
  }
};

/// dz = mask·(sum + addend) in the place of the addend. A product, so that NaN stays NaN as in masked_activation_grad.
template <class T, int kColumns>
__device__ inline void masked_sum(const float (&sums)[kColumns / 2], const MaskRows& mask, std::uint32_t tile) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const std::uint32_t at = tile + place_in_boxes(row, 16 * i + lane / 16 * 8);
    std::uint32_t addend[4], dz[4];
    load_matrices(addend, at);
#pragma unroll
    for (int q = 0; q < 4; ++q) {  // rows g and g + 8 of the first eight columns, then of the next
      const int j = 2 * i + q / 2, bit = j % 4 * 8;
      const std::uint32_t bits = mask.words[q % 2][j / 4];
      const float2 a = HalfPair<T>::unpack(HalfPair<T>::of(addend[q]));
      dz[q] = bits_of(HalfPair<T>::pack((sums[8 * i + 2 * q] + a.x) * (bits & 1u << bit ? 1.0f : 0.0f),
                                        (sums[8 * i + 2 * q + 1] + a.y) * (bits & 2u << bit ? 1.0f : 0.0f)));
    }
    store_matrices(at, dz);
  }
}

/// The two columns that a thread adds up, and half of the rows: those whose number has bit 2 set, or not set. So
/// the two threads of a warp that share columns read different banks.
struct ColumnPair {
  int pair, half;

  __device__ static ColumnPair of_thread() {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    return {thread / 32 * 16 + thread % 16, thread % 32 / 16};
  }
  /// Adds a tile's values as they are stored, in order.
  template <class T>
  __device__ void add(std::uint32_t tile, float2& total) const {
    const std::uint32_t rows = tile + pair / 32 * 8192 + half * 512 + pair % 4 * 4;
    const std::uint32_t chunk = (pair / 4 % 8 ^ half * 4) * 16;
    const auto load = [&](int eight, int row) {
      std::uint32_t word;
      asm volatile("ld.shared.u32 %0, [%1];"
                   : "=r"(word)
                   : "r"(rows + eight * 1024 + row * 128 + (chunk ^ row * 16))
                   : "memory");
      return HalfPair<T>::unpack(HalfPair<T>::of(word));
    };
    float2 even = {0, 0}, odd = {0, 0};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 p = load(i / 2, i % 2 * 2), q = load(i / 2, i % 2 * 2 + 1);
      even.x += p.x, even.y += p.y, odd.x += q.x, odd.y += q.y;
    }
    total.x += even.x + odd.x, total.y += even.y + odd.y;
  }
  /// Writes the sums of both halves; `to` is that of the block's first column.
  __device__ void write(float2 total, float* to) const {
    total.x += __shfl_xor_sync(0xffffffffu, total.x, 16);
    total.y += __shfl_xor_sync(0xffffffffu, total.y, 16);
    if (half == 0) reinterpret_cast<float2*>(to)[pair] = total;
  }
};

/// A warpgroup's GEMM of one tile; releases each stage as soon as it is read.
template <class T, int kColumns, int kBuffers>
__device__ inline void multiply_tile(float (&sums)[kColumns / 2], const MaskedCut& cut,
                                     const MaskedShared<kBuffers>& shared, RingPlace& from, Turns& turns) {
  using Tile = MaskedTile<kBuffers>;
  const bool releases = threadIdx.x % 32 == 0;
  if (cut.in_turn) {
    shared.turn_of(turns.group).wait(turns.parity);
    turns.parity ^= 1;
  }
  int before = 0;
  for (int d = 0; d < cut.depths; ++d, from.next(1, cut.stages)) {
    shared.full(from.stage).wait(from.parity);
    const std::uint64_t a = operand_at(shared.dy + from.stage * Tile::kStageBytes);
    const std::uint64_t b = columns_at(shared.weights + d * Tile::kWeightBytes);
    begin_products();
#pragma unroll
    for (int k = 0; k < Tile::kDepth / 16; ++k)
      WarpgroupMma<T, kColumns, 0, 1>::run(sums, a + k * kNextSixteen, b + k * kNextSixteenRows, d > 0 || k > 0);
    commit_products();
    if (d > 0) {
      wait_for_products<1>();
      if (releases) shared.empty(before).arrive();
    }
    before = from.stage;
  }
  if (releases && cut.in_turn) shared.turn_of(turns.group ^ 1).arrive();
  wait_for_products<0>();
  products_done(sums);
  if (releases) shared.empty(before).arrive();
}

/// Brings the weights, then all stages of the block's tiles in turn. One thread.
template <int kBuffers>
__device__ inline void copy_stages(const CUtensorMap& dy, const CUtensorMap& w, const MaskedCut& cut,
                                   const MaskedShared<kBuffers>& shared, int first_column, int first, int step) {
  using Tile = MaskedTile<kBuffers>;
  shared.weights_there().arrive_expecting(cut.depths * Tile::kWeightBytes);
  for (int d = 0; d < cut.depths; ++d)
    for (int c = 0; c < Tile::kColumns; c += 64)
      load_box(shared.weights + d * Tile::kWeightBytes + c / 64 * Tile::kBoxBytes, w, first_column + c,
               d * Tile::kDepth, shared.weights_there());
  RingPlace to;
  for (int tile = first; tile < cut.tiles; tile += step)
    for (int d = 0; d < cut.depths; ++d, to.next(1, cut.stages)) {
      shared.empty(to.stage).wait(to.parity ^ 1);
      shared.full(to.stage).arrive_expecting(Tile::kStageBytes);
      load_box(shared.dy + to.stage * Tile::kStageBytes, dy, d * Tile::kDepth, tile * Tile::kRows,
               shared.full(to.stage));
    }
}

/// Brings the tiles of the addend of a warpgroup, and stores dz from where they lay. One thread.
template <int kBuffers>
__device__ inline void copy_tiles(const CUtensorMap& addend, const CUtensorMap& dz, const MaskedCut& cut,
                                  const MaskedShared<kBuffers>& shared, int group, int first_column, int part,
                                  int parts) {
  using Tile = MaskedTile<kBuffers>;
  const auto bring = [&](int tile, int buffer) {
    shared.came(group, buffer).arrive_expecting(Tile::kTileBytes);
    for (int c = 0; c < Tile::kColumns; c += 64)
      load_box(shared.tile(group, buffer) + c / 64 * Tile::kBoxBytes, addend, first_column + c, tile * Tile::kRows,
               shared.came(group, buffer));
  };
  for (int b = 0; b < kBuffers; ++b)
    if (part + b * parts < cut.tiles) bring(part + b * parts, b);
  RingPlace at;
  for (int tile = part; tile < cut.tiles; tile += parts, at.next(1, kBuffers)) {
    shared.ready(group, at.stage).wait(at.parity);
    for (int c = 0; c < Tile::kColumns; c += 64)
      store_box(dz, first_column + c, tile * Tile::kRows, shared.tile(group, at.stage) + c / 64 * Tile::kBoxBytes);
    commit_stores();
    wait_for_stores_to_read();
    shared.summed(group, at.stage).wait(at.parity);
    if (tile + kBuffers * parts < cut.tiles) bring(tile + kBuffers * parts, at.stage);
  }
}

/// Block b computes column b % column_blocks of tiles b / column_blocks, and so on; its warpgroups alternate.
template <class T, int kBuffers>
__global__ void __launch_bounds__(MaskedTile<kBuffers>::kThreads, 1)
    warpgroup_masked_gradient_kernel(const __grid_constant__ CUtensorMap dy, const __grid_constant__ CUtensorMap w,
                                     const __grid_constant__ CUtensorMap addend, const __grid_constant__ CUtensorMap dz,
                                     const MaskedCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = MaskedTile<kBuffers>;
  extern __shared__ __align__(128) char memory[];
  const MaskedShared<kBuffers> shared(shared_address(memory), cut);
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * Tile::kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / cut.column_blocks;
  if (threadIdx.x == 0) shared.set_up(cut.stages);
  wait_then_let_next_start();  // all blocks run at once, so the next kernel delays none of them
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<Tile::kKept>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp == 3) return;
    if (warp == 2)
      copy_stages(dy, w, cut, shared, first_column, first, step);
    else
      copy_tiles(addend, dz, cut, shared, warp, first_column, first + warp * step, 2 * step);
    return;
  }
  take_registers<Tile::kTaken>();
  RingPlace from, at;
  from.next(group * cut.depths, cut.stages);
  Turns turns{group};
  const int part = first + group * step, parts = 2 * step;
  const ColumnPair columns = ColumnPair::of_thread();
  float2 total = {0, 0};
  float* const to = cut.partials + std::int64_t{first * 2 + group} * cut.columns + first_column;
  if (part >= cut.tiles) columns.write(total, to);
  shared.weights_there().wait(0);
  for (int tile = part; tile < cut.tiles; tile += parts, at.next(1, kBuffers)) {
    float sums[Tile::kColumns / 2];
    MaskRows mask;
    mask.load(cut, std::int64_t{tile} * Tile::kRows, first_column);
    multiply_tile<T, Tile::kColumns>(sums, cut, shared, from, turns);
    from.next(cut.depths, cut.stages);
    mask.shift();
    shared.came(group, at.stage).wait(at.parity);
    masked_sum<T, Tile::kColumns>(sums, mask, shared.tile(group, at.stage));
    publish_to_copies();
    sync_warpgroup(1 + group);
    if (threadIdx.x % 128 == 0) shared.ready(group, at.stage).arrive();
    columns.add<T>(shared.tile(group, at.stage), total);
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.summed(group, at.stage).arrive();
    if (tile + parts >= cut.tiles) columns.write(total, to);  // in the loop: after it ptxas would spill
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

}  // namespace bantam::kernels::cuda
