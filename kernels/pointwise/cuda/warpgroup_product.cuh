// Pointwise convolution with wgmma: weights stay in shared memory, tensor copies bring tiles of x, and two
// warpgroups alternate: one multiplies x, or x after a norm and its activation, while the other writes its tile and
// computes the moments of it.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/pointwise/cuda/warpgroup_ring.cuh"

namespace bantam::kernels::cuda {

/// A stage as the GEMM reads it: 128 threads replace its 64 rows by f(x̂·scale + shift), in place.
template <class T>
struct StageNorm {
  char* memory;  ///< shared, and its address
  std::uint32_t base;
  SharedNorm norm;
  int barrier;  ///< the warpgroup's

  __device__ void apply(const WarpgroupCut& cut, std::uint32_t stage, int depth) const {
    constexpr int kRows = static_cast<int>(WarpgroupProduct::kTileRows), kChunks = 8, kTogether = 128 / kChunks;
    const int thread = static_cast<int>(threadIdx.x) % 128, row = thread / kChunks, chunk = thread % kChunks;
    const int c = depth * 64 + chunk * 8;
    if (c < cut.in) {
      const Affine<8> affine = norm.load(c);
      char* const to = memory + (stage - base) + row * 128 + (chunk ^ row % 8) * 16;
#pragma unroll
      for (int r = 0; r < kRows; r += kTogether)
        normalise_in_place(reinterpret_cast<T*>(to + r * 128), affine, cut.clamp);
    }
    publish_to_copies();
    sync_warpgroup(barrier);
  }
};
/// A warpgroup's results on their way out, and the moments of eight of their columns a thread.
template <class T, int kColumns>
struct WarpgroupResults {
  using Tile = WarpgroupTile<kColumns>;
  static constexpr int kLanes = kColumns / 8, kTogether = 128 / kLanes;  ///< threads of a row, rows at once
  std::uint32_t at;
  int barrier;
  int thread = static_cast<int>(threadIdx.x) % 128;
  int row = thread / kLanes, column = thread % kLanes * 8;
  Pack<T, 8> origin = {};
  float sum[8] = {}, squares[8] = {};

  /// The shared memory of columns [c, c + 8) of a row.
  __device__ static std::uint32_t place(int row, int c) {
    return c / 64 * (Tile::kRows * 128) + row * 128 + (c / 8 % 8 ^ row % 8) * 16;
  }
  __device__ Pack<T, 8> load(int r) const {
    Pack<T, 8> pack;
    auto* const words = reinterpret_cast<std::uint32_t*>(&pack);
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at + place(r, column))
                 : "memory");
    return pack;
  }
  /// Rounds the sums into shared memory.
  __device__ void put(const float (&sums)[kColumns / 2]) const {
    const int lane = thread % 32, here = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = bits_of(HalfPair<T>::pack(sums[8 * j + 2 * i], sums[8 * j + 2 * i + 1]));
      store_matrices(at + place(here, 16 * j + lane / 16 * 8), pairs);
    }
  }
  /// Sums over the rows that lie in shared memory.
  __device__ void add(int inside, bool first) {
    if (first) origin = load(0);
    float from[8];
    unpack<8>(origin, from);
#pragma unroll 4
    for (int r = row; r < inside; r += kTogether) {
      float v[8];
      unpack<8>(load(r), v);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        v[n] -= from[n];
        sum[n] += v[n];
        squares[n] = fmaf(v[n], v[n], squares[n]);
      }
    }
  }
  /// Writes a tile, whose first rows are `inside`.
  __device__ void write(const float (&sums)[kColumns / 2], const CUtensorMap& y, const WarpgroupCut& cut, int tile,
                        int first_column, bool first) {
    if (thread == 0) wait_for_stores_to_read();
    sync_warpgroup(barrier);  // no thread reads the tile before
    put(sums);
    publish_to_copies();
    sync_warpgroup(barrier);
    if (thread == 0) {
      for (int c = 0; c < kColumns && first_column + c < cut.out; c += 64)
        store_box(y, first_column + c, tile * cut.tile_rows, at + place(0, c));
      commit_stores();
    }
    if (cut.partials == nullptr) return;
    const std::int64_t left = cut.rows - std::int64_t{tile} * cut.tile_rows;
    add(static_cast<int>(min(left, std::int64_t{cut.tile_rows})), first);
  }
  /// Adds up the warpgroup's sums in the order of their first rows, and writes the part's moments.
  __device__ void write_moments(const WarpgroupCut& cut, int first_column, int part, int parts, char* shared) {
    if (thread == 0) wait_for_stores_to_read();
    sync_warpgroup(barrier);
    auto* const sums = reinterpret_cast<float2*>(shared);  // (kTogether, kColumns)
#pragma unroll
    for (int n = 0; n < 8; ++n) sums[row * kColumns + column + n] = {sum[n], squares[n]};
    float* const to = cut.partials + std::int64_t{part} * 3 * cut.out + first_column;
    if (row == 0 && first_column + column < cut.out) {
#pragma unroll
      for (int n = 0; n < 8; ++n) to[column + n] = to_float(origin.v[n]);
    }
    sync_warpgroup(barrier);
    std::int64_t rows = 0;
    for (int tile = part; tile < cut.tiles; tile += parts)
      rows += min(cut.rows - std::int64_t{tile} * cut.tile_rows, std::int64_t{cut.tile_rows});
    const float count = static_cast<float>(rows);
    for (int c = thread; c < kColumns && first_column + c < cut.out; c += 128) {
      float2 total = {0, 0};
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        total.x += sums[r * kColumns + c].x;
        total.y += sums[r * kColumns + c].y;
      }
      const float mean = rows > 0 ? total.x / count : 0.0f;
      to[cut.out + c] = mean;
      to[2 * cut.out + c] = fmaxf(total.y - total.x * mean, 0.0f);
      if (first_column + c == 0) cut.counts[part] = count;
    }
  }
};

/// Block b computes column b % column_blocks of tiles b / column_blocks, and so on; its warpgroups alternate.
template <class T, int kColumns, bool kNormed>
__global__ void __launch_bounds__(WarpgroupTile<kColumns>::kThreads, 1)
    warpgroup_product_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                             const __grid_constant__ CUtensorMap y, const WarpgroupCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = WarpgroupTile<kColumns>;
  extern __shared__ __align__(128) char memory[];
  const WarpgroupShared<kColumns> shared(shared_address(memory), cut);
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / cut.column_blocks;
  if (threadIdx.x == 0) shared.set_up();
  wait_then_let_next_start();  // all blocks run at once, so the next kernel delays none of them
  const SharedNorm vectors = SharedNorm::at(memory + (shared.norm - shared_address(memory)), cut.in);
  if constexpr (kNormed) vectors.fill(cut.norm, cut.in);
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == Tile::kWarpgroups) {
    keep_registers<Tile::kKept>();
    if (threadIdx.x % 128 == 0) copy_stages<kColumns>(x, w, cut, shared, first_column, first, step);
    return;
  }
  take_registers<Tile::kTaken>();
  const std::uint32_t place = shared.results + group * Tile::kResultBytes;
  WarpgroupResults<T, kColumns> results{place, 1 + group};
  RingPlace from;
  from.next(group * cut.depths, cut.stages);
  Turns turns{group};
  const int part = first + group * step, parts = Tile::kWarpgroups * step;
  std::conditional_t<kNormed, StageNorm<T>, NoPrologue> norm;
  if constexpr (kNormed) norm = {memory, shared_address(memory), vectors, 1 + group};
  shared.weights_there().wait(0);
  for (int tile = part; tile < cut.tiles; tile += parts) {
    float sums[kColumns / 2];
    multiply_tile<T>(sums, cut, shared, norm, from, turns);
    from.next((Tile::kWarpgroups - 1) * cut.depths, cut.stages);
    results.write(sums, y, cut, tile, first_column, tile == part);
  }
  if (cut.partials != nullptr)
    results.write_moments(cut, first_column, part, parts, memory + (place - shared_address(memory)));
  else if (results.thread == 0)
    wait_for_stores_to_read();  // the block must not end before they have
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

}  // namespace bantam::kernels::cuda
