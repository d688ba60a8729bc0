// dz_before = relu'(z)·da, da the GEMM of [ã | dz] and stacked weights, and its sums over rows, by wgmma. One warp of a
// block copies stages of the left operand, two copy tiles of x in and tiles of dz_before out, and two warpgroups
// multiply. Where all weights fit in shared memory they stay there, and the warpgroups alternate between tiles of 64
// rows; else weights come with each stage, and the warpgroups share tiles of 128 rows.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/expand/expand_parts.h"
#include "bantam/kernels/norm/cuda/batch_norm_affine.cuh"

namespace bantam::kernels::cuda {

/// The arguments that a launch's blocks receive besides the tensors.
struct ReduceCut {
  std::int64_t rows;
  int columns;         ///< of ã, x and dz_before
  int narrow, depths;  ///< stages of 64 channels: those of ã; all
  int tiles, row_blocks, column_blocks, stages;
  bool in_turn;  ///< whether warpgroups multiply strictly in turn
  ExpandReduceOperands operands;
  AffineSource norm;  ///< of x
  float* partials;    ///< (parts, 2, columns)
};

/// A block's shared memory: weights or none, tiles of x that become tiles of dz_before, stages, the columns' vectors,
/// barriers. Rows have 128 bytes, swizzled.
template <int kColumnsOfTile, bool kWeightsStay>
struct ReduceTile {
  static constexpr int kColumns = kColumnsOfTile, kThreads = 384;
  static constexpr bool kResident = kWeightsStay;
  /// Tiles that the warpgroups multiply at a time, and the rows of one.
  static constexpr int kTilesAtOnce = kResident ? 2 : 1, kRows = 64 * 2 / kTilesAtOnce;
  static constexpr int kBuffers = kColumns == 64 ? 2 : 1;  ///< of each warpgroup, for x
  static constexpr int kLeftBytes = kRows * 128, kRightBytes = kColumns * 128, kBoxBytes = 64 * 128;
  static constexpr int kStageBytes = kResident ? kLeftBytes : kLeftBytes + kRightBytes, kTileBytes = kColumns * 128;
  static constexpr int kMostStages = 20, kVectorBytes = kColumns * 16, kBarriers = 3 + 2 * kMostStages + 4 * kBuffers;

  static constexpr int weight_bytes(int depths) { return kResident ? depths * kRightBytes : 0; }
  static constexpr int bytes(int depths, int stages) {
    return weight_bytes(depths) + 2 * kBuffers * kTileBytes + stages * kStageBytes + kVectorBytes + kBarriers * 8;
  }

  std::uint32_t weights, tiles, stages, vectors, barriers;
  __device__ ReduceTile(std::uint32_t base, const ReduceCut& cut)
      : weights(base),
        tiles(weights + weight_bytes(cut.depths)),
        stages(tiles + 2 * kBuffers * kTileBytes),
        vectors(stages + cut.stages * kStageBytes),
        barriers(vectors + kVectorBytes) {}
  __device__ SharedBarrier barrier(int i) const { return {barriers + 8 * i}; }
  __device__ SharedBarrier weights_there() const { return barrier(0); }
  __device__ SharedBarrier turn_of(int group) const { return barrier(1 + group); }
  __device__ SharedBarrier full(int stage) const { return barrier(3 + stage); }
  __device__ SharedBarrier empty(int stage) const { return barrier(3 + kMostStages + stage); }
  /// A tile of x has come; a tile of dz_before is in its place.
  __device__ SharedBarrier came(int group, int buffer) const {
    return barrier(3 + 2 * kMostStages + group * kBuffers + buffer);
  }
  __device__ SharedBarrier ready(int group, int buffer) const {
    return barrier(3 + 2 * kMostStages + (2 + group) * kBuffers + buffer);
  }
  __device__ std::uint32_t tile(int group, int buffer) const {
    return tiles + (group * kBuffers + buffer) * kTileBytes;
  }
  __device__ std::uint32_t stage(int i) const { return stages + i * kStageBytes; }
  /// The operands of stage i, which is the tile's d-th.
  __device__ std::uint32_t left(int i, int group) const { return stage(i) + (kResident ? 0 : group * kBoxBytes); }
  __device__ std::uint32_t right(int i, int d) const {
    return kResident ? weights + d * kRightBytes : stage(i) + kLeftBytes;
  }
  __device__ void set_up(int used_stages) const {
    weights_there().init(1);
    for (int g = 0; g < 2; ++g) {
      turn_of(g).init(4);
      for (int b = 0; b < kBuffers; ++b) came(g, b).init(1), ready(g, b).init(4);
    }
    for (int i = 0; i < used_stages; ++i) {
      full(i).init(1);
      empty(i).init(8 / kTilesAtOnce);  // the warps that read it
    }
    publish_barriers();
  }
  /// The vectors of each column: mean, factor and shift of x's norm, and the row added to da. Zeros beyond the last.
  __device__ void fill_vectors(char* to, const ReduceCut& cut, int first_column) const {
#pragma unroll 1
    for (int c = static_cast<int>(threadIdx.x); c < kColumns; c += kThreads) {
      float4 v = {};
      if (const int column = first_column + c; column < cut.columns) {
        const Affine<1> affine = cut.norm.load<1>(column);
        v = {affine.mean[0], affine.factor[0], affine.shift[0], cut.operands.row[column]};
      }
      reinterpret_cast<float4*>(to)[c] = v;
    }
  }
};

/// The tiles of a block, or of one of its warpgroups: first, first + step, ...
struct TileRange {
  int first, step;
};

/// Brings the weights that stay, then all stages of the block's tiles in turn. One thread.
template <class Tile>
__device__ inline void copy_stages(const CUtensorMap& narrow, const CUtensorMap& wide, const CUtensorMap& w,
                                   const ReduceCut& cut, const Tile& shared, int first_column, TileRange tiles) {
  const auto load_weights = [&](std::uint32_t to, int d, SharedBarrier barrier) {
    for (int c = 0; c < Tile::kColumns; c += 64)
      load_box(to + c / 64 * Tile::kBoxBytes, w, first_column + c, d * 64, barrier);
  };
  if constexpr (Tile::kResident) {
    shared.weights_there().arrive_expecting(Tile::weight_bytes(cut.depths));
    for (int d = 0; d < cut.depths; ++d) load_weights(shared.right(0, d), d, shared.weights_there());
  }
  RingPlace to;
  for (int tile = tiles.first; tile < cut.tiles; tile += tiles.step)
    for (int d = 0; d < cut.depths; ++d, to.next(1, cut.stages)) {
      const SharedBarrier full = shared.full(to.stage);
      shared.empty(to.stage).wait(to.parity ^ 1);
      full.arrive_expecting(Tile::kStageBytes);
      if (d < cut.narrow)
        load_box(shared.stage(to.stage), narrow, d * 64, tile * Tile::kRows, full);
      else
        load_box(shared.stage(to.stage), wide, (d - cut.narrow) * 64, tile * Tile::kRows, full);
      if constexpr (!Tile::kResident) load_weights(shared.right(to.stage, d), d, full);
    }
}

/// Brings a warpgroup's tiles of x, and writes the tiles of dz_before that take their places. One thread.
template <class Tile>
__device__ inline void copy_tiles(const CUtensorMap& x, const CUtensorMap& dz_before, const ReduceCut& cut,
                                  const Tile& shared, int first_column, TileRange tiles, int group) {
  const auto row_of = [&](int tile) { return tile * Tile::kRows + (Tile::kResident ? 0 : group * 64); };
  const auto bring = [&](int tile, int buffer) {
    shared.came(group, buffer).arrive_expecting(Tile::kTileBytes);
    for (int c = 0; c < Tile::kColumns; c += 64)
      load_box(shared.tile(group, buffer) + c / 64 * Tile::kBoxBytes, x, first_column + c, row_of(tile),
               shared.came(group, buffer));
  };
  const int ahead = Tile::kBuffers * tiles.step;
  for (int b = 0; b < Tile::kBuffers; ++b)
    if (tiles.first + b * tiles.step < cut.tiles) bring(tiles.first + b * tiles.step, b);
  RingPlace at;
  for (int tile = tiles.first; tile < cut.tiles; tile += tiles.step, at.next(1, Tile::kBuffers)) {
    shared.ready(group, at.stage).wait(at.parity);
    for (int c = 0; c < Tile::kColumns && first_column + c < cut.columns; c += 64)
      store_box(dz_before, first_column + c, row_of(tile), shared.tile(group, at.stage) + c / 64 * Tile::kBoxBytes);
    commit_stores();
    wait_for_stores_to_read();
    if (tile + ahead < cut.tiles)
      bring(tile + ahead, at.stage);
    else if (tile + tiles.step >= cut.tiles)
      shared.came(group, at.stage).arrive();  // the last: its buffer is free
  }
}

/// One stage's products: 64 channels.
template <class T, int kColumns>
__device__ inline void multiply_stage(float (&sums)[kColumns / 2], std::uint32_t a, std::uint32_t b, bool keep) {
  const std::uint64_t left = operand_at(a), right = columns_at(b);
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    WarpgroupMma<T, kColumns, 0, 1>::run(sums, left + k * kNextSixteen, right + k * kNextSixteenRows, keep || k > 0);
  commit_products();
}

/// A warpgroup's GEMM of one tile: the products with ã, times narrow_scale, then those with dz. Releases each stage as
/// soon as it is read. The first stage is peeled: with the sums' first wgmma in a loop of run-time length before they
/// are scaled, ptxas would serialise.
template <class T, class Tile>
__device__ inline void multiply_tile(float (&sums)[Tile::kColumns / 2], const ReduceCut& cut, const Tile& shared,
                                     float narrow_scale, RingPlace& from, Turns& turns) {
  constexpr int kColumns = Tile::kColumns;
  const bool releases = threadIdx.x % 32 == 0;
  if (Tile::kResident && cut.in_turn) {
    shared.turn_of(turns.group).wait(turns.parity);
    turns.parity ^= 1;
  }
  int before = from.stage;
  shared.full(before).wait(from.parity);
  multiply_stage<T, kColumns>(sums, shared.left(before, turns.group), shared.right(before, 0), false);
  from.next(1, cut.stages);
  for (int d = 1; d < cut.narrow; ++d, from.next(1, cut.stages)) {
    shared.full(from.stage).wait(from.parity);
    multiply_stage<T, kColumns>(sums, shared.left(from.stage, turns.group), shared.right(from.stage, d), true);
    wait_for_products<1>();
    if (releases) shared.empty(before).arrive();
    before = from.stage;
  }
  wait_for_products<0>();
  products_done(sums);
  if (releases) shared.empty(before).arrive();
#pragma unroll
  for (float& s : sums) s *= narrow_scale;
  for (int d = cut.narrow; d < cut.depths; ++d, from.next(1, cut.stages)) {
    shared.full(from.stage).wait(from.parity);
    multiply_stage<T, kColumns>(sums, shared.left(from.stage, turns.group), shared.right(from.stage, d), true);
    if (d > cut.narrow) {
      wait_for_products<1>();
      if (releases) shared.empty(before).arrive();
    }
    before = from.stage;
  }
  if (Tile::kResident && releases && cut.in_turn) shared.turn_of(turns.group ^ 1).arrive();
  wait_for_products<0>();
  products_done(sums);
  if (releases) shared.empty(before).arrive();
}

/// dz_before in the place of x, in shared memory, of a warpgroup's 64 rows, of which `rows` are inside. `sums` becomes
/// Σ dz_before and Σ dz_before·(x - mean) of the thread's two rows: four values for columns 8j + 2t and 8j + 2t + 1
/// (sum, product, sum, product).
template <class T, int kColumns>
__device__ inline void slope_sums(float (&sums)[kColumns / 2], std::uint32_t tile, std::uint32_t vectors, float scale,
                                  std::int64_t rows) {
  using Pair = HalfPair<T>;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
  const std::uint32_t place = place_in_boxes(warp * 16 + lane % 16, lane / 16 * 8);
  const int row = warp * 16 + lane / 4;
  const bool low = row < rows, high = row + 8 < rows;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const std::uint32_t at = tile + i / 4 * 8192 + (place ^ i % 4 * 32);  // 16i columns on
    std::uint32_t x[4], y[4];
    load_matrices(x, at);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t from = vectors + (16 * i + 8 * h + lane % 4 * 2) * 16;
      const float4 u = load_shared_float4(from), v = load_shared_float4(from + 16);  // mean, factor, shift, row
      float2 c = floats_of(Pair::of(x[2 * h])), e = floats_of(Pair::of(x[2 * h + 1]));
      c.x -= u.x, c.y -= v.x, e.x -= u.x, e.y -= v.x;
      // z as Affine::z computes it, so that relu' has the bits of the relu in forward.
      const bool on[4] = {low && fmaf(c.x, u.y, u.z) > 0.0f, low && fmaf(c.y, v.y, v.z) > 0.0f,
                          high && fmaf(e.x, u.y, u.z) > 0.0f, high && fmaf(e.y, v.y, v.z) > 0.0f};
      float* const s = sums + 8 * i + 4 * h;
      const float da[4] = {fmaf(s[0], scale, u.w), fmaf(s[1], scale, v.w), fmaf(s[2], scale, u.w),
                           fmaf(s[3], scale, v.w)};
      y[2 * h] = bits_of(Pair::pack(on[0] ? da[0] : 0.0f, on[1] ? da[1] : 0.0f));
      y[2 * h + 1] = bits_of(Pair::pack(on[2] ? da[2] : 0.0f, on[3] ? da[3] : 0.0f));
      const float2 p = floats_of(Pair::of(y[2 * h])), q = floats_of(Pair::of(y[2 * h + 1]));
      s[0] = p.x + q.x;
      s[1] = fmaf(p.x, c.x, q.x * e.x);
      s[2] = p.y + q.y;
      s[3] = fmaf(p.y, c.y, q.y * e.y);
    }
    store_matrices(at, y);
  }
}

/// Half of the values go to the lane `kAway` away, half come: kCount / 2 are left.
template <int kCount, int kAway>
__device__ inline void halve(float* values) {
  const bool upper = threadIdx.x & kAway;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float mine = upper ? values[i + kCount / 2] : values[i], other = upper ? values[i] : values[i + kCount / 2];
    values[i] = mine + __shfl_xor_sync(0xffffffffu, other, kAway);
  }
}
/// total += the warp's sums: lane 4g + t gets columns 8j + 2t and 8j + 2t + 1 of j in [g·kColumns/64, ...).
template <int kColumns>
__device__ inline void add_sums(float (&sums)[kColumns / 2], float (&total)[kColumns / 16]) {
  halve<kColumns / 2, 16>(sums);
  halve<kColumns / 4, 8>(sums);
  halve<kColumns / 8, 4>(sums);
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) total[i] += sums[i];
}
/// Adds up the sums of a warpgroup's four warps, in order, and writes the first `inside` of each. scratch: (4, 2,
/// kColumns) floats.
template <int kColumns>
__device__ inline void store_sums(const float (&total)[kColumns / 16], float* scratch, float* to, int columns,
                                  int inside, int barrier) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const int column = (lane / 4 * (kColumns / 64) + i / 4) * 8 + lane % 4 * 2 + i / 2 % 2;
    scratch[(warp * 2 + i % 2) * kColumns + column] = total[i];
  }
  sync_warpgroup(barrier);
#pragma unroll 1
  for (int i = thread; i < 2 * kColumns; i += 128) {
    if (i % kColumns >= inside) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) sum += scratch[w * 2 * kColumns + i];
    to[i / kColumns * columns + i % kColumns] = sum;
  }
}

/// Block b computes column block b % column_blocks of tiles from b / column_blocks on. Part 2·(b / column_blocks) + g
/// has the sums of its warpgroup g.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    expand_reduce_kernel(const __grid_constant__ CUtensorMap narrow, const __grid_constant__ CUtensorMap wide,
                         const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ CUtensorMap dz_before, const ReduceCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kColumns = Tile::kColumns, kTaken = 232, kKept = 40;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();  // the swizzle's pattern starts there
  const Tile shared(shared_address(memory), cut);
  const auto pointer = [&](std::uint32_t address) { return memory + (address - shared_address(memory)); };
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  if (threadIdx.x == 0) shared.set_up(cut.stages);
  wait_then_let_next_start();  // all blocks run at once, so the next kernel delays none of them
  shared.fill_vectors(pointer(shared.vectors), cut, first_column);
  __syncthreads();
  const auto tiles_of = [&](int group) {
    return TileRange{first + (Tile::kTilesAtOnce - 1) * group * cut.row_blocks, Tile::kTilesAtOnce * cut.row_blocks};
  };
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<kKept>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp == 3) return;
    if (warp == 0)
      copy_stages(narrow, wide, w, cut, shared, first_column, {first, cut.row_blocks});
    else
      copy_tiles(x, dz_before, cut, shared, first_column, tiles_of(warp - 1), warp - 1);
    return;
  }
  take_registers<kTaken>();
  const TileRange tiles = tiles_of(group);
  const int passed = (Tile::kTilesAtOnce - 1) * cut.depths;  // stages of the other warpgroup's tile
  RingPlace from;
  from.next(group * passed, cut.stages);
  Turns turns{group};
  const float narrow_scale = cut.operands.scales[0], scale = cut.operands.scales[1];
  const int inside = cut.columns - first_column;
  float* const part = cut.partials + std::int64_t{first * 2 + group} * 2 * cut.columns + first_column;
  if (tiles.first >= cut.tiles)
    for (int i = static_cast<int>(threadIdx.x) % 128; i < inside; i += 128) part[i] = part[cut.columns + i] = 0;
  if constexpr (Tile::kResident) shared.weights_there().wait(0);
  float total[kColumns / 16] = {};
  unsigned done = 0;  // tiles
  for (int tile = tiles.first; tile < cut.tiles; tile += tiles.step, ++done) {
    float sums[kColumns / 2];
    multiply_tile<T>(sums, cut, shared, narrow_scale, from, turns);
    from.next(passed, cut.stages);
    const int buffer = static_cast<int>(done % Tile::kBuffers);
    const std::uint32_t place = shared.tile(group, buffer), parity = done / Tile::kBuffers % 2;
    shared.came(group, buffer).wait(parity);
    slope_sums<T, kColumns>(sums, place, shared.vectors, scale,
                            cut.rows - std::int64_t{tile} * Tile::kRows - (Tile::kResident ? 0 : group * 64));
    publish_to_copies();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.ready(group, buffer).arrive();
    add_sums<kColumns>(sums, total);
    if (tile + tiles.step >= cut.tiles) {  // here: with code after the loop ptxas keeps to 168 registers, and spills
      shared.came(group, buffer).wait(parity ^ 1);
      store_sums<kColumns>(total, reinterpret_cast<float*>(pointer(place)), part, cut.columns, inside, 1 + group);
    }
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

}  // namespace bantam::kernels::cuda
