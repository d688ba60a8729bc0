// The small matrices of an expanding convolution by wgmma, with float32's digits: one operand is W, exact in its half
// type, the other a sum of two float16 or three bfloat16 terms. T = W·C and c3's statistics; the gradients that P
// contains and k⊙W; M = Wᵀ·diag(s)·W and the constant row.
#pragma once

#include "bantam/kernels/common/cuda/cluster.cuh"
#include "bantam/kernels/common/cuda/last_block.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/expand/cuda/expand_algebra.cuh"
#include "bantam/kernels/expand/expand.h"
#include "bantam/kernels/norm/cuda/norm_statistics.cuh"

namespace bantam::kernels::cuda {

/// Bytes of a box of 64 rows and 64 columns.
inline constexpr int kSmallBox = 8192;

/// Terms of T whose sum has about float32's digits.
template <class T>
inline constexpr int kTerms = std::is_same_v<T, __half> ? 2 : 3;

/// Eight neighbours as terms of T, the largest first, each in a box of its own.
template <class T>
__device__ inline void store_terms(std::uint32_t address, float (&v)[8]) {
#pragma unroll
  for (int term = 0; term < kTerms<T>; ++term) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto pair = HalfPair<T>::pack(v[2 * i], v[2 * i + 1]);
      const float2 stored = HalfPair<T>::unpack(pair);
      words[i] = bits_of(pair);
      v[2 * i] -= stored.x, v[2 * i + 1] -= stored.y;
    }
    store_shared_words(address + term * kSmallBox, words);
  }
}

// ---- T = W·C and statistics: a block has 64·kGroups rows of W and 64 columns of C, a cluster all columns ----

/// The arguments of a launch besides W.
struct StatisticsCut {
  double rows;
  ExpandMoments moments;
  const float *scale, *shift;  ///< those that the origin depends on; null: 1 and 0
  float* products;             ///< T: (out, in)
  FinishStatistics finish;
};

/// A block's shared memory: its rows of W, one box a depth of 64 and warpgroup, then buffers for terms of C.
template <class T, int kIn>
struct StatisticsTile {
  static constexpr int kGroups = kIn < 512 ? 1 : 2, kRows = 64 * kGroups, kThreads = 128 * kGroups;
  static constexpr int kDepths = kIn / 64, kCluster = kIn / 64, kBuffers = kDepths < 3 ? kDepths : 3;
  static constexpr int kDepthBytes = kGroups * kSmallBox, kBufferBytes = kTerms<T> * kSmallBox;
  static constexpr int kAlignment = 1024, kBytes = kDepths * kDepthBytes + kBuffers * kBufferBytes + kAlignment;
};

/// The vectors of a block's 64 columns.
struct StatisticsColumns {
  float by[64], back[64];  ///< a power of two that brings a column of C into float16's range, and its inverse
  float mean[64], origin[64];

  /// By the largest possible |C[c][j]|: the root of the product of both variances, and rounding errors of what was
  /// subtracted from the second moments. All threads of the block.
  __device__ void fill(const StatisticsCut& cut, int in, int first) {
    const auto variance_of = [&](int c) { return fmaxf(cut.moments.covariance[std::int64_t{c} * in + c], 0.0f); };
    float variance = 0, square = 0;  // the largest
    for (int c = static_cast<int>(threadIdx.x); c < in; c += static_cast<int>(blockDim.x)) {
      const float v = variance_of(c), m = cut.moments.mean[c];
      variance = fmaxf(variance, v), square = fmaxf(square, fmaf(m, m, v));
    }
    variance = block_max(variance), square = block_max(square);
    const int i = static_cast<int>(threadIdx.x), c = first + i;
    if (i < 64) {
      constexpr float kRounding = 1.0f / 4096;
      const float v = variance_of(c), m = cut.moments.mean[c];
      const float most = fmaf(kRounding, sqrtf(fmaf(m, m, v)) * sqrtf(square), sqrtf(v) * sqrtf(variance));
      by[i] = scale_to(most, 15), back[i] = 1.0f / by[i], mean[i] = m;
      origin[i] = expand_origin(cut.scale ? cut.scale[c] : 1.0f, cut.shift ? cut.shift[c] : 0.0f);
    }
    __syncthreads();
  }
};

template <class T, int kIn>
__global__ void __launch_bounds__(StatisticsTile<T, kIn>::kThreads)
    expand_statistics_kernel(const __grid_constant__ CUtensorMap w, const StatisticsCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = StatisticsTile<T, kIn>;
  constexpr int kCluster = Tile::kCluster;
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) std::uint64_t barriers[Tile::kDepths];
  __shared__ StatisticsColumns columns;
  __shared__ float variances[Tile::kRows], means[Tile::kRows], moves[Tile::kRows];
  const std::uint32_t base = (shared_address(memory) + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  const std::uint32_t buffers = base + Tile::kDepths * Tile::kDepthBytes;
  const auto full = [&](int depth) { return SharedBarrier{shared_address(barriers + depth)}; };
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128, lane = thread % 32, warp = thread % 128 / 32;
  const int block = static_cast<int>(blockIdx.x) % kCluster;
  const int first = static_cast<int>(blockIdx.x) / kCluster * Tile::kRows;
  if (thread == 0) {
    for (int d = 0; d < Tile::kDepths; ++d) full(d).init(1);
    publish_barriers();
  }
  wait_then_let_next_start();
  if (thread == 0)
    for (int d = 0; d < Tile::kDepths; ++d) {
      full(d).arrive_expecting(Tile::kDepthBytes);
      for (int g = 0; g < Tile::kGroups; ++g)
        load_box(base + d * Tile::kDepthBytes + g * kSmallBox, w, d * 64, first + g * 64, full(d));
    }
  // C is symmetric: 64 rows of it are the block's columns. A thread has eight neighbours of kEach rows at a time.
  constexpr int kEach = 512 / Tile::kThreads;
  float4 next[kEach][2];
  const auto fetch = [&](int depth) {
#pragma unroll
    for (int q = 0; q < kEach; ++q) {
      const int row = (thread + q * Tile::kThreads) / 8;
      const auto* const from = reinterpret_cast<const float4*>(
          cut.moments.covariance + std::int64_t{block * 64 + row} * kIn + depth * 64 + thread % 8 * 8);
      next[q][0] = from[0], next[q][1] = from[1];
    }
  };
  fetch(0);
  columns.fill(cut, kIn, block * 64);
  float sums[32];
#pragma unroll
  for (int depth = 0; depth < Tile::kDepths; ++depth) {
    const std::uint32_t right = buffers + depth % Tile::kBuffers * Tile::kBufferBytes;
#pragma unroll
    for (int q = 0; q < kEach; ++q) {
      const int row = (thread + q * Tile::kThreads) / 8;
      const float by = columns.by[row];
      float v[8] = {next[q][0].x * by, next[q][0].y * by, next[q][0].z * by, next[q][0].w * by,
                    next[q][1].x * by, next[q][1].y * by, next[q][1].z * by, next[q][1].w * by};
      store_terms<T>(right + place_in_boxes(row, thread % 8 * 8), v);
    }
    publish_to_copies();
    // All have written, and have waited for the products of depth - 2, in whose buffer depth + 1 goes.
    __syncthreads();
    if (depth + 1 < Tile::kDepths) fetch(depth + 1);
    full(depth).wait(0);
    const std::uint64_t a = operand_at(base + depth * Tile::kDepthBytes + group * kSmallBox);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int term = kTerms<T> - 1; term >= 0; --term)
        WarpgroupMma<T, 64>::run(sums, a + k * kNextSixteen, operand_at(right + term * kSmallBox) + k * kNextSixteen,
                                 depth > 0 || k > 0 || term < kTerms<T> - 1);
    commit_products();
    wait_for_products<1>();
  }
  wait_for_products<0>();
  products_done(sums);
  const std::uint32_t left = base + block * Tile::kDepthBytes + group * kSmallBox;  // W's columns of this block
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const int row = warp * 16 + lane / 4 + 8 * upper;
    float* const to = cut.products + std::int64_t{first + group * 64 + row} * kIn + block * 64 + lane % 4 * 2;
    float mean = 0, moved = 0, variance = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int c = 8 * j + lane % 4 * 2;
      const float2 v =
          HalfPair<T>::unpack(HalfPair<T>::of(load_shared_word(left + place_in_boxes(row, 8 * j) + lane % 4 * 4)));
      const float2 t = {sums[4 * j + 2 * upper] * columns.back[c], sums[4 * j + 2 * upper + 1] * columns.back[c + 1]};
      *reinterpret_cast<float2*>(to + 8 * j) = t;
      mean = fmaf(v.x, columns.mean[c], fmaf(v.y, columns.mean[c + 1], mean));
      moved = fmaf(v.x, columns.origin[c], fmaf(v.y, columns.origin[c + 1], moved));
      variance = fmaf(v.x, t.x, fmaf(v.y, t.y, variance));
    }
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      mean += __shfl_xor_sync(0xffffffffu, mean, apart);
      moved += __shfl_xor_sync(0xffffffffu, moved, apart);
      variance += __shfl_xor_sync(0xffffffffu, variance, apart);
    }
    if (lane % 4 == 0) {
      const int at = group * 64 + row;
      means[at] = mean, moves[at] = moved, variances[at] = variance;
    }
  }
  sync_cluster();
  constexpr int kMine = Tile::kRows / kCluster;
  if (thread < kMine) {
    const int row = block * kMine + thread, o = first + row;
    double mean = 0, moved = 0, variance = 0;
#pragma unroll
    for (unsigned rank = 0; rank < kCluster; ++rank) {
      mean += load_of_block(rank, means + row);
      moved += load_of_block(rank, moves + row);
      variance += load_of_block(rank, variances + row);
    }
    const Moments<double, 1> batch{cut.rows, {mean + moved}, {fmax(variance, 0.0) * cut.rows}};
    cut.finish(o, cut.finish.begin(o), 0.0f, batch);
    cut.finish.saved_mean[o] = static_cast<float>(mean);  // of ã·wᵀ, which the kernels normalise
  }
  sync_cluster();
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

// ---- m, dγ, dβ, dW, k⊙W/ρ and its part of the constant row: a warp has kEach rows ----

template <int kIn>
struct GradientRows {
  static constexpr int kThreads = 256, kEach = kIn < 512 ? 1 : 2, kRows = kThreads / 32 * kEach;
};

/// What both kernels below read and write, besides W's tensor map.
struct GradientsCut {
  int out, blocks;  ///< blocks: of the first kernel
  float rows;
  const void* w;  ///< (out, in)
  const float *scale, *inv_std, *mean, *products, *p, *dz_sums;
  float *dw, *dscale, *dshift;
  bool accumulate_w, accumulate_after;
  float *slopes, *widest;  ///< (out): s = k·r·m, the largest |w| of a row
  float* weight_rows;      ///< -Σdz/N·k⊙W: (blocks, in)
  void* stacked;           ///< [-M·scale ; k⊙W/ρ]: (in + out, in)
  float* scales;           ///< ExpandReduceOperands
  float* row_parts;        ///< (in / 16 + 1, in)
  float* row;              ///< their sums: (in)
  unsigned* counter;
};

template <class T, int kIn>
__global__ void __launch_bounds__(GradientRows<kIn>::kThreads) expand_gradients_kernel(const GradientsCut cut) {
  using Rows = GradientRows<kIn>;
  using Vector = typename HalfPair<T>::Vector;
  constexpr int kEach = Rows::kEach, kPairs = kIn / 64, kBlockWarps = Rows::kThreads / 32;
  __shared__ float columns[kBlockWarps][kIn];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int first = static_cast<int>(blockIdx.x) * Rows::kRows + warp * kEach;
  const auto at = [&](int o, int i) { return std::int64_t{o} * kIn + 64 * i + 2 * lane; };
  const auto factor = [&](int o) { return (cut.scale ? cut.scale[o] : 1.0f) * cut.inv_std[o]; };
  const auto store = [&](float* to, int o, float v) {
    if (to) to[o] = cut.accumulate_after ? to[o] + v : v;
  };
  wait_then_let_next_start();
  float2 w[kEach][kPairs], p[kEach][kPairs], d[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    d[i] = *reinterpret_cast<const float2*>(cut.mean + 64 * i + 2 * lane);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      p[e][i] = *reinterpret_cast<const float2*>(cut.p + at(first + e, i));
      w[e][i] = HalfPair<T>::unpack(*reinterpret_cast<const Vector*>(static_cast<const T*>(cut.w) + at(first + e, i)));
    }
  }
  float most = 0;
  for (int o = thread; o < cut.out; o += Rows::kThreads) most = fmaxf(most, fabsf(factor(o)));
  const float rho = 1.0f / scale_to(block_max(most), 0);  // a power of two that no |k| exceeds
  if (blockIdx.x == 0 && thread == 0) cut.scales[1] = rho;
  float2 column[kPairs] = {};
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int o = first + e;
    const float sum = cut.dz_sums[o], r = cut.inv_std[o], k = factor(o);
    float product = 0, widest = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      p[e][i].x = fmaf(-sum, d[i].x, p[e][i].x), p[e][i].y = fmaf(-sum, d[i].y, p[e][i].y);
      product = fmaf(w[e][i].x, p[e][i].x, fmaf(w[e][i].y, p[e][i].y, product));
      widest = fmaxf(widest, fmaxf(fabsf(w[e][i].x), fabsf(w[e][i].y)));
    }
    product = warp_sum(product), widest = warp_max(widest);
    const float dscale = product * r, along = dscale * r;
    if (lane == 0) {
      store(cut.dscale, o, dscale), store(cut.dshift, o, sum);
      cut.slopes[o] = k * along / cut.rows, cut.widest[o] = widest;
    }
    const float share = -sum / cut.rows * rho, small_k = k / rho;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (cut.dw) {
        const float2 t = *reinterpret_cast<const float2*>(cut.products + at(o, i));
        float2 dw = {k * fmaf(-along, t.x, p[e][i].x), k * fmaf(-along, t.y, p[e][i].y)};
        auto* const to = reinterpret_cast<float2*>(cut.dw + at(o, i));
        if (cut.accumulate_w) dw.x += to->x, dw.y += to->y;
        *to = dw;
      }
      const Vector kw = HalfPair<T>::pack(small_k * w[e][i].x, small_k * w[e][i].y);
      *reinterpret_cast<Vector*>(static_cast<T*>(cut.stacked) + kIn * kIn + at(o, i)) = kw;
      const float2 v = HalfPair<T>::unpack(kw);
      column[i].x = fmaf(share, v.x, column[i].x), column[i].y = fmaf(share, v.y, column[i].y);
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) *reinterpret_cast<float2*>(&columns[warp][64 * i + 2 * lane]) = column[i];
  __syncthreads();
  for (int c = thread; c < kIn; c += Rows::kThreads) {
    float sum = 0;
#pragma unroll
    for (int way = 0; way < kBlockWarps; ++way) sum += columns[way][c];
    cut.weight_rows[std::int64_t{blockIdx.x} * kIn + c] = sum;
  }
}

// ---- M and the constant row: a cluster of four blocks has a tile of 64 x 64 of the lower triangle, each block a
// quarter of the rows of W ----

/// A block's shared memory: a ring of stages, one box of W and the terms of s⊙W; then s.
template <class T, int kIn>
struct SlopeTile {
  static constexpr int kThreads = 128, kCluster = 4, kStages = 4, kAlignment = 1024, kPitch = 65;
  static constexpr int kStageBytes = (1 + kTerms<T>)*kSmallBox;
  static constexpr int kBlocks = kIn / 64 * (kIn / 64 + 1) / 2 * kCluster;

  /// Depths of 64 rows of W that block `rank` of a cluster has: every fourth.
  __host__ __device__ static constexpr int depths(int out, int rank) {
    return (out / 64 + kCluster - 1 - rank) / kCluster;
  }
  static constexpr int bytes(int out) { return kStages * kStageBytes + depths(out, 0) * 256 + kAlignment; }
};

template <class T, int kIn>
__global__ void __launch_bounds__(SlopeTile<T, kIn>::kThreads)
    expand_slope_kernel(const __grid_constant__ CUtensorMap w, const GradientsCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = SlopeTile<T, kIn>;
  constexpr int kPitch = Tile::kPitch, kThreads = Tile::kThreads;
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) std::uint64_t barriers[Tile::kStages];
  __shared__ float part[16][64 + 1], ways[kThreads];
  const std::uint32_t base = (shared_address(memory) + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  float* const tile = reinterpret_cast<float*>(memory + (base - shared_address(memory)));  // (64, kPitch), over stages
  float* const slopes = tile + Tile::kStages * Tile::kStageBytes / 4;
  const auto full = [&](int i) { return SharedBarrier{shared_address(barriers + i)}; };
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x) % Tile::kCluster, depths = Tile::depths(cut.out, rank);
  int upper = static_cast<int>(blockIdx.x) / Tile::kCluster, lower = 0;  // rows and columns, rows >= columns
  {
    int row = 0;
    while (upper > row) upper -= ++row;
    lower = upper, upper = row;
  }
  const auto row_of = [&](int depth) { return (rank + depth * Tile::kCluster) * 64; };
  const auto bring = [&](int depth) {
    const int i = depth % Tile::kStages;
    const std::uint32_t stage = base + i * Tile::kStageBytes;
    full(i).arrive_expecting(2 * kSmallBox);
    load_box(stage, w, upper * 64, row_of(depth), full(i));
    load_box(stage + kSmallBox, w, lower * 64, row_of(depth), full(i));
  };
  if (thread == 0) {
    for (int i = 0; i < Tile::kStages; ++i) full(i).init(1);
    publish_barriers();
    for (int depth = 0; depth < min(depths, Tile::kStages); ++depth) bring(depth);  // the kernel before only reads W
  }
  wait_then_let_next_start();
  float most = 0, bound = 0;
  for (int o = thread; o < cut.out; o += kThreads) {
    const float slope = fabsf(cut.slopes[o]), widest = cut.widest[o];
    most = fmaxf(most, slope * widest);
    bound = fmaf(slope * widest, widest, bound);
  }
  for (int i = thread; i < depths * 64; i += kThreads) slopes[i] = cut.slopes[row_of(i / 64) + i % 64];
  const float sigma = scale_to(block_max(most), 14);
  const float by = scale_to(block_sum(bound), 14), back = 1.0f / by;  // of -M as stored
  float sums[32] = {};
  RingPlace at;
  for (int depth = 0; depth < depths; ++depth, at.next(1, Tile::kStages)) {
    const std::uint32_t left = base + at.stage * Tile::kStageBytes, right = left + kSmallBox;
    full(at.stage).wait(at.parity);
#pragma unroll
    for (int q = 0; q < 4; ++q) {  // s⊙W as terms, in place
      const int row = thread / 8 + 16 * q;
      const std::uint32_t address = right + row * 128 + thread % 8 * 16;
      const float scale = slopes[depth * 64 + row] * sigma;
      std::uint32_t words[4];
      load_shared_words(words, address);
      float v[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = HalfPair<T>::unpack(HalfPair<T>::of(words[i]));
        v[2 * i] = pair.x * scale, v[2 * i + 1] = pair.y * scale;
      }
      store_terms<T>(address, v);
    }
    publish_to_copies();
    __syncthreads();
    // All have waited for the products of depth - 2.
    if (depth >= 2 && depth + Tile::kStages - 2 < depths && thread == 0) bring(depth + Tile::kStages - 2);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int term = kTerms<T> - 1; term >= 0; --term)
        WarpgroupMma<T, 64, 1, 1>::run(sums, columns_at(left) + k * kNextSixteenRows,
                                       columns_at(right + term * kSmallBox) + k * kNextSixteenRows, true);
    commit_products();
    wait_for_products<1>();
  }
  wait_for_products<0>();
  products_done(sums);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      tile[(warp * 16 + lane / 4 + 8 * (i / 2)) * kPitch + 8 * j + lane % 4 * 2 + i % 2] = sums[4 * j + i];
  sync_cluster();
  // This block's 16 rows of the sum of all four.
  const bool diagonal = upper == lower;
  T* const stacked = static_cast<T*>(cut.stacked);
  for (int i = thread; i < 16 * 64; i += kThreads) {
    const int row = rank * 16 + i / 64, column = i % 64;
    float v = 0;
#pragma unroll
    for (unsigned from = 0; from < Tile::kCluster; ++from) v += load_of_block(from, tile + row * kPitch + column);
    const T stored = from_float<T>(-(v / sigma) * by);
    const int r = upper * 64 + row, c = lower * 64 + column;
    stacked[r * kIn + c] = stored;
    if (!diagonal) stacked[c * kIn + r] = stored;
    part[i / 64][column] = -to_float(stored) * back;
  }
  // The constant row in parts, from both operands as they are rounded, so that their rounding has no mean: mean·M, part
  // p of rows 16p to 16p + 15 of M, and last that of k⊙W.
  const int mine = upper * 64 + rank * 16;  // the first of this block's rows
  if (diagonal) {                           // 16 columns, 8 ways
    float sum = 0;
#pragma unroll 8
    for (int i = thread / 16; i < cut.blocks; i += 8)
      sum += cut.weight_rows[std::int64_t{i} * kIn + mine + thread % 16];
    ways[thread] = sum;
  }
  __syncthreads();
  if (diagonal && thread < 16) {
    float sum = 0;
    for (int way = 0; way < 8; ++way) sum += ways[way * 16 + thread];
    cut.row_parts[kIn / 16 * kIn + mine + thread] = sum;
  }
  if (thread < 64) {  // of all columns, over these 16 rows
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum = fmaf(cut.mean[mine + i], part[i][thread], sum);
    cut.row_parts[(upper * 4 + rank) * kIn + lower * 64 + thread] = sum;
  } else if (!diagonal && thread < 80) {  // of these 16 as columns of the upper triangle, whose rows are one part
    const int i = thread - 64;
    float sum = 0;
#pragma unroll 8
    for (int j = 0; j < 64; ++j) sum = fmaf(cut.mean[lower * 64 + j], part[i][j], sum);
    for (int slot = 0; slot < 4; ++slot) cut.row_parts[(lower * 4 + slot) * kIn + mine + i] = slot == 0 ? sum : 0.0f;
  }
  if (blockIdx.x == 0 && thread == 0) cut.scales[0] = back / cut.scales[1];
  sync_cluster();
  if (!last_of_grid(cut.counter)) return;
  for (int c = thread; c < kIn; c += kThreads) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i <= kIn / 16; ++i) sum += cut.row_parts[i * kIn + c];
    cut.row[c] = sum;
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

}  // namespace bantam::kernels::cuda
