// The shifted input ã of an expanding convolution with its Gram matrix and sums in one pass, by wgmma: a warpgroup
// turns tiles of 64 rows of x into ã where they lie in shared memory, multiplies them from there, and tensor copies
// store them. Then the moments from all blocks' parts.
#pragma once

#include "bantam/kernels/common/cuda/cluster.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/expand/cuda/expand_algebra.cuh"
#include "bantam/kernels/expand/expand_parts.h"

namespace bantam::kernels::cuda {

/// The arguments that a launch's blocks receive besides the tensors.
struct CentreCut {
  std::int64_t rows;
  int tiles;  ///< of 64 rows
  CentreRule rule;
  float *gram, *sums;  ///< (blocks, in, in), (blocks, in): a block's parts of ãᵀ·ã and Σã
};

/// A block's shared memory: each warpgroup has kSlots tiles of its own.
template <int kIn>
struct CentreTile {
  static constexpr int kRows = static_cast<int>(kExpandTileRows);
  static constexpr int kGroups = static_cast<int>(expand_centre_warpgroups(kIn)), kSlots = 6;
  static constexpr int kThreads = kGroups * 128, kBoxBytes = kRows * 128, kSlotBytes = kIn / 64 * kBoxBytes;
  static constexpr int kAlignment = 1024, kBytes = kGroups * kSlots * kSlotBytes + kAlignment;
  /// Threads that share a row, eight channels each, and rows of a warpgroup at a time.
  static constexpr int kChunks = kIn / 8, kTogether = 128 / kChunks;
};

/// A warpgroup's ãᵀ·ã: 64 by 64; or, of 128 channels, 64 by 64 and below it 64 by 128.
template <class T, int kIn>
struct GramSums;

template <class T>
struct GramSums<T, 64> {
  static constexpr int kCount = 32;
  float all[32] = {};

  __device__ void multiply(std::uint32_t tile) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint64_t a = columns_at(tile) + k * kNextSixteenRows;
      WarpgroupMma<T, 64, 1, 1>::run(all, a, a, true);
    }
    commit_products();
  }
  __device__ void done() { products_done(all); }
  __device__ float& at(int i) { return all[i]; }
  __device__ void store(float* to) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
        *reinterpret_cast<float2*>(to + (warp * 16 + lane / 4 + 8 * upper) * 64 + 8 * j + lane % 4 * 2) = {
            all[4 * j + 2 * upper], all[4 * j + 2 * upper + 1]};
  }
};

template <class T>
struct GramSums<T, 128> {
  static constexpr int kCount = 96;
  float first[32] = {}, second[64] = {};

  __device__ void multiply(std::uint32_t tile) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::uint64_t a = columns_at(tile) + k * kNextSixteenRows,
                          b = columns_at(tile + 8192) + k * kNextSixteenRows;
      WarpgroupMma<T, 64, 1, 1>::run(first, a, a, true);
      WarpgroupMma<T, 128, 1, 1>::run(second, b, a, true);
    }
    commit_products();
  }
  __device__ void done() { products_done(first), products_done(second); }
  __device__ float& at(int i) { return i < 32 ? first[i] : second[i - 32]; }
  __device__ void store(float* to) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int row = warp * 16 + lane / 4 + 8 * upper, column = 8 * j + lane % 4 * 2;
        if (j < 8)
          *reinterpret_cast<float2*>(to + row * 128 + column) = {first[4 * (j % 8) + 2 * upper],
                                                                 first[4 * (j % 8) + 2 * upper + 1]};
        const float2 v = {second[4 * j + 2 * upper], second[4 * j + 2 * upper + 1]};
        *reinterpret_cast<float2*>(to + (64 + row) * 128 + column) = v;
        if (j < 8) to[column * 128 + 64 + row] = v.x, to[(column + 1) * 128 + 64 + row] = v.y;
      }
  }
};

/// ã of a thread's eight channels of one row, where x lies; zeros beyond the last row. Adds them as stored to `sums`.
template <class T>
__device__ inline void centre_chunk(std::uint32_t address, const CentreRule& rule, const Centred<8>& kept, bool there,
                                    float (&sums)[8]) {
  std::uint32_t words[4];
  load_shared_words(words, address);
  float v[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = HalfPair<T>::unpack(HalfPair<T>::of(words[i]));
    v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
  }
  rule.apply(kept, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = there ? bits_of(HalfPair<T>::pack(v[2 * i], v[2 * i + 1])) : 0;
    const float2 stored = HalfPair<T>::unpack(HalfPair<T>::of(words[i]));
    sums[2 * i] += stored.x, sums[2 * i + 1] += stored.y;
  }
  store_shared_words(address, words);
}

/// Warpgroup g of block b has tiles b·kGroups + g, and so on.
template <class T, int kIn>
__global__ void __launch_bounds__(CentreTile<kIn>::kThreads, 1)
    expand_centre_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap centred,
                         const CentreCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = CentreTile<kIn>;
  constexpr int kGroups = Tile::kGroups, kSlots = Tile::kSlots;
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) std::uint64_t barriers[kGroups * kSlots];
  const std::uint32_t base = (shared_address(memory) + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  const auto full = [&](int slot) { return SharedBarrier{shared_address(barriers + group * kSlots + slot)}; };
  const auto slot_at = [&](int slot) { return base + (group * kSlots + slot) * Tile::kSlotBytes; };
  const int first = static_cast<int>(blockIdx.x) * kGroups + group, step = static_cast<int>(gridDim.x) * kGroups;
  const auto bring = [&](int tile, int slot) {
    full(slot).arrive_expecting(Tile::kSlotBytes);
    for (int c = 0; c < kIn; c += 64)
      load_box(slot_at(slot) + c / 64 * Tile::kBoxBytes, x, c, tile * Tile::kRows, full(slot));
  };
  if (thread == 0) {
    for (int s = 0; s < kSlots; ++s) full(s).init(1);
    publish_barriers();
  }
  wait_then_let_next_start();
  if (thread == 0)
    for (int s = 0; s < kSlots; ++s)
      if (first + s * step < cut.tiles) bring(first + s * step, s);
  const int chunk = thread % Tile::kChunks, first_row = thread / Tile::kChunks;
  const Centred<8> kept = cut.rule.load<8>(chunk * 8);
  float sums[8] = {};
  __syncthreads();
  GramSums<T, kIn> gram;
  RingPlace at;
  int before = 0;
  for (int tile = first; tile < cut.tiles; tile += step) {
    full(at.stage).wait(at.parity);
    const std::uint32_t slot = slot_at(at.stage);
    const std::int64_t rows_left = cut.rows - std::int64_t{tile} * Tile::kRows;
#pragma unroll 4
    for (int row = first_row; row < Tile::kRows; row += Tile::kTogether)
      centre_chunk<T>(slot + place_in_boxes(row, chunk * 8), cut.rule, kept, row < rows_left, sums);
    publish_to_copies();
    sync_warpgroup(1 + group);  // all have waited for the products of the tile before: its slot is read
    gram.multiply(slot);
    wait_for_products<0>();
    gram.done();
    if (thread == 0) {
      for (int c = 0; c < kIn; c += 64) store_box(centred, c, tile * Tile::kRows, slot + c / 64 * Tile::kBoxBytes);
      commit_stores();
      wait_for_stores_to_read<1>();  // those of the tile before
      if (const int next = tile + (kSlots - 1) * step; tile != first && next < cut.tiles) bring(next, before);
    }
    __syncwarp();
    before = at.stage;
    at.next(1, kSlots);
  }
  if (thread == 0) wait_for_stores_to_read();
  __syncthreads();
  float* const scratch = reinterpret_cast<float*>(memory + (base - shared_address(memory)));
  for (int g = 0; g < kGroups; ++g) {  // adds up the warpgroups' sums, in order
    if (group == g) {
      if (g > 0)
#pragma unroll
        for (int i = 0; i < gram.kCount; ++i) gram.at(i) += scratch[i * 128 + thread];
      if (g + 1 < kGroups)
#pragma unroll
        for (int i = 0; i < gram.kCount; ++i) scratch[i * 128 + thread] = gram.at(i);
    }
    __syncthreads();
  }
  if (group == kGroups - 1) gram.store(cut.gram + std::int64_t{blockIdx.x} * kIn * kIn);
#pragma unroll
  for (int n = 0; n < 8; ++n) scratch[(group * Tile::kTogether + first_row) * kIn + chunk * 8 + n] = sums[n];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < kIn) {
    float sum = 0;
    for (int r = 0; r < kGroups * Tile::kTogether; ++r) sum += scratch[r * kIn + static_cast<int>(threadIdx.x)];
    cut.sums[std::int64_t{blockIdx.x} * kIn + static_cast<int>(threadIdx.x)] = sum;
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

inline constexpr int kMomentThreads = 256, kMomentCluster = 8;

/// Σ over parts of from[part·stride], parts way, way + ways, ... in order.
__device__ inline float add_parts_of(const float* from, std::int64_t stride, int parts, int way, int ways) {
  float sum = 0;
#pragma unroll 8
  for (int part = way; part < parts; part += ways) sum += from[part * stride];
  return sum;
}

/// The mean and the covariance from all parts. A block has a row of the covariance; the blocks of a cluster share the
/// work of the means.
template <int kIn>
__global__ void __launch_bounds__(kMomentThreads)
    merge_moments_kernel(const float* gram, const float* sums, int parts, float rows, const ExpandMoments moments) {
  constexpr int kSlice = kIn / kMomentCluster, kWays = kMomentThreads / kSlice, kRowWays = kMomentThreads / kIn;
  __shared__ float partial[kMomentThreads], slice[kSlice], mean[kIn];
  const int thread = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x), rank = row % kMomentCluster;
  wait_then_let_next_start();
  // The Gram matrix's row is under way while the means are computed.
  const float of_row = add_parts_of(gram + row * kIn + thread % kIn, kIn * kIn, parts, thread / kIn, kRowWays);
  partial[thread] = add_parts_of(sums + rank * kSlice + thread % kSlice, kIn, parts, thread / kSlice, kWays);
  __syncthreads();
  if (thread < kSlice) {
    float sum = 0;
    for (int way = 0; way < kWays; ++way) sum += partial[way * kSlice + thread];
    slice[thread] = sum / rows;
  }
  sync_cluster();
  partial[thread] = of_row;
  if (thread < kIn) {
    mean[thread] = load_of_block(static_cast<unsigned>(thread / kSlice), slice + thread % kSlice);
    if (row == 0) moments.mean[thread] = mean[thread];
  }
  __syncthreads();
  if (thread < kIn) {
    float sum = 0;
    for (int way = 0; way < kRowWays; ++way) sum += partial[way * kIn + thread];
    moments.covariance[row * kIn + thread] = fmaf(-mean[row], mean[thread], sum / rows);
  }
  sync_cluster();
}

}  // namespace bantam::kernels::cuda
