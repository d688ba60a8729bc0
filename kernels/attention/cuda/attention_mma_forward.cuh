// Attention forward by tensor cores, for the half types: a warp has the sums of its queries in registers, a block its
// keys and values in a ring of chunks.
#pragma once

#include "bantam/kernels/attention/cuda/attention_mma.cuh"

namespace bantam::kernels::cuda {

/// Keys and values of a chunk.
template <int kSize>
inline constexpr int kChunkKeys = kSize <= 64 ? 64 : 32;

/// How blocks are made up. Up to 208 tokens a block has a whole head, its warps a tile of 16 queries each: twice the
/// warps on a multiprocessor hide what reading each key for fewer queries costs. Beyond, four warps read through a ring
/// of two chunks, for two tiles each where sums fit the registers.
template <int kSize, bool kWhole>
struct ForwardBlock {
  static constexpr int kTiles = kSize <= 64 && !kWhole ? 2 : 1;
  static constexpr int kWarps = kWhole ? 13 : 4;
  static constexpr int kStages = kWhole ? 4 : 2;
  static constexpr int kBlocks = kWhole ? 2 : kSize <= 64 ? 3 : 4;  ///< a multiprocessor
};

/// Powers of two by which sums may grow before they are scaled down to a row's maximum: float32 and both half types
/// hold the sums of such P as well.
inline constexpr float kMostGrowth = 8;

/// One warp's sums over keys of 16·kTiles queries.
template <class T, int kSize, int kTiles>
struct ForwardRows {
  using Rows = MmaRows<T, kSize>;

  typename Rows::Sums sums[kTiles] = {};
  float most[kTiles][2];        ///< scaled maxima of a lane's two rows of a tile, or up to kMostGrowth below them
  float total[kTiles][2] = {};  ///< of this lane's columns
  float scale;                  ///< of scores to powers of two, not negative

  std::uint32_t queries;  ///< in shared memory, from which they are read again: registers hold sums

  /// Where the scale is negative, queries change their signs.
  __device__ ForwardRows(T* rows, float scale_of_products)
      : scale(fabsf(scale_of_products) * kLog2OfE), queries(shared_address(rows)) {
    if (scale_of_products < 0) {
      for (int i = static_cast<int>(threadIdx.x) % 32; i < 16 * kTiles * Rows::kStride / 2; i += 32)
        reinterpret_cast<std::uint32_t*>(rows)[i] ^= 0x80008000u;
      __syncwarp();
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) most[t][0] = most[t][1] = -INFINITY;
  }

  /// Adds 16·kKeyTiles keys and values, of which the first `inside` are there; all where not kMasked.
  template <int kKeyTiles, bool kMasked>
  __device__ void add(std::uint32_t keys, std::uint32_t values, int inside) {
    float s[kTiles][2 * kKeyTiles][4] = {};
    const std::uint32_t own = queries + straight_lane<Rows::kStride>(), crossed = keys + crossed_lane<Rows::kStride>();
#pragma unroll
    for (int d = 0; d < Rows::kSteps; ++d) {
      std::uint32_t q[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) load_matrices(q[t], own + t * 16 * Rows::kRowBytes + d * 32);
#pragma unroll
      for (int k = 0; k < kKeyTiles; ++k) {
        std::uint32_t b[4];
        load_matrices(b, crossed + k * 16 * Rows::kRowBytes + d * 32);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) multiply_16<T>(s[t][2 * k], s[t][2 * k + 1], q[t], b);
      }
    }
    if constexpr (kMasked) {
      const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
      for (int j = 0; j < 2 * kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (j * 8 + column + i % 2 < inside) continue;
#pragma unroll
          for (int t = 0; t < kTiles; ++t) s[t][j][i] = -INFINITY;
        }
      }
    }
    keep_maxima(s);
    const std::uint32_t straight = values + straight_lane<Rows::kStride>();
#pragma unroll
    for (int k = 0; k < kKeyTiles; ++k) {
      std::uint32_t p[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int j = 2 * k; j < 2 * k + 2; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[t][j][i] = power_of_two(fmaf(s[t][j][i], scale, -most[t][i / 2]));
            total[t][i / 2] += s[t][j][i];
          }
        }
        operand_of<T>(s[t][2 * k], s[t][2 * k + 1], p[t]);
      }
#pragma unroll
      for (int n = 0; n < Rows::kSteps; ++n) {
        std::uint32_t b[4];
        load_matrices_transposed(b, straight + k * 16 * Rows::kRowBytes + n * 32);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) multiply_16<T>(sums[t][2 * n], sums[t][2 * n + 1], p[t], b);
      }
    }
  }

  /// Where a score of the warp's rows is far above its row's maximum so far, all maxima become those of now.
  template <int kColumns>
  __device__ void keep_maxima(const float (&s)[kTiles][kColumns][4]) {
    float top[kTiles][2];
    bool grew = false;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        top[t][h] = fmaxf(s[t][0][2 * h], s[t][0][2 * h + 1]);
#pragma unroll
        for (int j = 1; j < kColumns; ++j) top[t][h] = fmaxf(top[t][h], fmaxf(s[t][j][2 * h], s[t][j][2 * h + 1]));
        grew |= top[t][h] * scale > most[t][h] + kMostGrowth;
      }
    }
    if (!__any_sync(0xffffffffu, grew)) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float largest = fmaxf(top[t][h], __shfl_xor_sync(0xffffffffu, top[t][h], 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2)) * scale;
        largest = fmaxf(largest, most[t][h]);
        const float shrink = power_of_two(most[t][h] - largest);
        most[t][h] = largest;
        total[t][h] *= shrink;
#pragma unroll
        for (int n = 0; n < 2 * Rows::kSteps; ++n) {
          sums[t][n][2 * h] *= shrink;
          sums[t][n][2 * h + 1] *= shrink;
        }
      }
    }
  }

  /// Writes the rows of o from `first` on, by way of `staged`, and where it is wanted lse of the head's rows.
  __device__ void write(const HeadRows<T>& o, T* staged, float* lse, int first, const AttentionExtents& e, bool wide) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        total[t][h] += __shfl_xor_sync(0xffffffffu, total[t][h], 1);
        total[t][h] += __shfl_xor_sync(0xffffffffu, total[t][h], 2);
        const int token = first + t * 16 + h * 8 + lane / 4;
        if (lse != nullptr && lane % 4 == 0 && token < e.tokens)
          lse[token] = fmaf(most[t][h], kLogOf2, logf(total[t][h]));
      }
      Rows::stage(staged + t * 16 * Rows::kStride, sums[t], 1.0f / total[t][0], 1.0f / total[t][1]);
    }
    Rows::write(o, staged, first, 16 * kTiles, e, wide);
  }
};

/// A block's queries, and the ring.
template <int kSize, bool kWhole>
constexpr int forward_shared_bytes(int warps, int ring_rows) {
  return (warps * 16 * ForwardBlock<kSize, kWhole>::kTiles + 2 * ring_rows) * MmaRows<unsigned short, kSize>::kRowBytes;
}

/// A block has queries of one sample and head, ForwardBlock's tiles a warp. lse may be null.
template <class T, int kSize, bool kWhole>
__global__ void __launch_bounds__(32 * ForwardBlock<kSize, kWhole>::kWarps, ForwardBlock<kSize, kWhole>::kBlocks)
    attention_mma_forward(AttentionExtents e, RingPlan plan, const T* __restrict__ qkv, T* __restrict__ o,
                          float* __restrict__ lse) {
  if (!uses_mma<T>()) return;
  using Rows = MmaRows<T, kSize>;
  constexpr int kTiles = ForwardBlock<kSize, kWhole>::kTiles, kKeys = kChunkKeys<kSize>;
  extern __shared__ uint4 shared[];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const BlockTile block(plan.tiles);
  const int own = threads / 32 * 16 * kTiles, first = block.tile * own;
  T* const queries = reinterpret_cast<T*>(shared);
  T *const keys = queries + own * Rows::kStride, *const values = keys + plan.rows * Rows::kStride;
  const auto k_rows = e.rows_of_qkv(qkv, block.sample_head, 1), v_rows = e.rows_of_qkv(qkv, block.sample_head, 2);
  const int chunks = (e.tokens + kKeys - 1) / kKeys;
  const auto load = [&](int chunk) {
    if (chunk < chunks) {
      const int at = chunk % plan.stages * kKeys * Rows::kStride, key = chunk * kKeys;
      const int count = min(kKeys, (e.tokens - key + 15) / 16 * 16);
      Rows::copy(keys + at, k_rows, key, count, e, plan.wide, thread, threads);
      Rows::copy(values + at, v_rows, key, count, e, plan.wide, thread, threads);
    }
    commit_copies();
  };
  Rows::copy(queries, e.rows_of_qkv(qkv, block.sample_head, 0), first, own, e, plan.wide, thread, threads);
  for (int chunk = 0; chunk < plan.stages - 1; ++chunk) load(chunk);
  wait_for_chunk(plan.stages);
  T* const mine = queries + warp * 16 * kTiles * Rows::kStride;
  ForwardRows<T, kSize, kTiles> rows(mine, e.scale);
#pragma unroll 1
  for (int chunk = 0;;) {
    load(chunk + plan.stages - 1);
    const std::uint32_t at = chunk % plan.stages * kKeys * Rows::kRowBytes;
    std::uint32_t key_rows = shared_address(keys) + at, value_rows = shared_address(values) + at;
    int left = min(kKeys, e.tokens - chunk * kKeys);
#pragma unroll 1
    for (; left >= 32; left -= 32, key_rows += 32 * Rows::kRowBytes, value_rows += 32 * Rows::kRowBytes)
      rows.template add<2, false>(key_rows, value_rows, 32);
#pragma unroll 1
    for (; left > 0; left -= 16, key_rows += 16 * Rows::kRowBytes, value_rows += 16 * Rows::kRowBytes)
      rows.template add<1, true>(key_rows, value_rows, left);
    if (++chunk == chunks) break;
    wait_for_chunk(plan.stages);
  }
  float* const head_lse = lse == nullptr ? nullptr : lse + e.first_row(block.sample_head);
  rows.write(e.rows_of_output(o, block.sample_head), mine, head_lse, first + warp * 16 * kTiles, e, plan.wide);
}

}  // namespace bantam::kernels::cuda
