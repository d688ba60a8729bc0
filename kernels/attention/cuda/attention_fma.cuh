// Attention by fused multiply-adds: for float32 (no TF32), and for bfloat16 where tensor cores do not have it. Tiles of
// scores whose operands lie in shared memory as float32.
#pragma once

#include <algorithm>

#include "bantam/kernels/attention/cuda/attention_rows.cuh"
#include "bantam/kernels/common/cuda/mma/tile_products.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kFmaThreads = 256;  ///< 16 by 16: of a row's columns, and of rows
inline constexpr int kFmaOthers = 32;    ///< rows that a step reads: keys, or queries where a block has keys

/// Tiles of rows padded with zeros to kSize elements, of which a block has 16·kRows of its own.
template <class T, int kSize, int kRows>
struct FmaTile {
  static constexpr int kOwn = 16 * kRows;
  static constexpr int kStride = kSize + 4;            ///< of rows of a head
  static constexpr int kScoreStride = kFmaOthers + 4;  ///< of rows of scores
  static constexpr int kOwnFloats = kOwn * kStride, kOtherFloats = kFmaOthers * kStride,
                       kScoreFloats = kOwn * kScoreStride;
  static constexpr int kGroups = kSize / 64;  ///< of four columns, 64 apart, that a thread sums

  using Scores = ThreadSums<kRows, 2, 16, 16>;
  using Sums = ThreadRowSums<kRows>;

  /// Rows [first, first + kCount) to shared memory; zeros beyond `rows` and `size`.
  template <int kCount>
  __device__ static void load(float* to, const HeadRows<const T>& from, int first, int rows, int size) {
    constexpr int kFours = kSize / 4;
    for (int i = static_cast<int>(threadIdx.x); i < kCount * kFours; i += kFmaThreads) {
      const int r = i / kFours, c = i % kFours * 4;
      float v[4] = {};
      if (first + r < rows && c < size) unpack<4>(from.row(first + r) + c, v);
      *reinterpret_cast<float4*>(to + r * kStride + c) = make_float4(v[0], v[1], v[2], v[3]);
    }
  }

  /// This thread's place: rows row + 16·i of the block's own, columns column + 16·j of scores.
  int row = static_cast<int>(threadIdx.x) / 16, column = static_cast<int>(threadIdx.x) % 16;

  /// Products of the block's own rows with others.
  __device__ Scores products(const float* own, const float* others) const {
    Scores sums;
    sums.template add<kSize>(own + row * kStride, kStride, others + column * kStride, kStride);
    return sums;
  }
  /// Stores scores, rounded to T; only threads of one row read them, which are of one warp.
  __device__ void store(float* to, const Scores& scores) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j)
        to[(row + 16 * i) * kScoreStride + column + 16 * j] = to_float(from_float<T>(scores.v[i][j]));
    }
    __syncwarp();
  }
  /// sums += stored scores · others.
  __device__ void add(const float* scores, const float* others, Sums (&sums)[kGroups]) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      sums[g].template add<kFmaOthers, 16>(scores + row * kScoreStride, kScoreStride, others + g * 64 + column * 4,
                                           kStride);
  }
  /// Writes factor(i)·sums to rows first + row + 16·i.
  template <class Factor>
  __device__ void write(const HeadRows<T>& to, int first, int rows, int size, const Sums (&sums)[kGroups],
                        const Factor& factor) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int token = first + row + 16 * i;
      if (token >= rows) continue;
      const float f = factor(i);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int c = g * 64 + column * 4;
        const float4 v = sums[g].v[i];
        const float values[4] = {f * v.x, f * v.y, f * v.z, f * v.w};
        if (c < size) repack<4>(values, to.row(token) + c);
      }
    }
  }
};

/// The largest, or the sum, of a value of the 16 threads of a row.
__device__ inline float max_of_row(float v) {
  for (int apart = 8; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, apart));
  return v;
}
__device__ inline float sum_of_row(float v) {
  for (int apart = 8; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
  return v;
}

template <class T, int kSize, int kRows>
constexpr int kFmaForwardBytes = (FmaTile<T, kSize, kRows>::kOwnFloats + 2 * FmaTile<T, kSize, kRows>::kOtherFloats +
                                  FmaTile<T, kSize, kRows>::kScoreFloats) *
                                 4;

/// A block has 16·kRows queries of a sample and head. lse may be null.
template <class T, int kSize, int kRows>
__global__ void __launch_bounds__(kFmaThreads)
    attention_fma_forward(AttentionExtents extents, int tiles, const T* __restrict__ qkv, T* __restrict__ o,
                          float* __restrict__ lse) {
  if (uses_mma<T>()) return;
  using Tile = FmaTile<T, kSize, kRows>;
  extern __shared__ uint4 shared[];
  float* const queries = reinterpret_cast<float*>(shared);
  float *const keys = queries + Tile::kOwnFloats, *const values = keys + Tile::kOtherFloats,
               *const scores = values + Tile::kOtherFloats;
  const BlockTile block(tiles);
  const int first = block.tile * Tile::kOwn;
  const auto k_rows = extents.rows_of_qkv(qkv, block.sample_head, 1),
             v_rows = extents.rows_of_qkv(qkv, block.sample_head, 2);
  Tile::template load<Tile::kOwn>(queries, extents.rows_of_qkv(qkv, block.sample_head, 0), first, extents.tokens,
                                  extents.size);
  const Tile tile;
  typename Tile::Sums sums[Tile::kGroups];
  float most[kRows], total[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) most[i] = -INFINITY;
  for (int key = 0; key < extents.tokens; key += kFmaOthers) {
    __syncthreads();  // the keys and values before have been read
    Tile::template load<kFmaOthers>(keys, k_rows, key, extents.tokens, extents.size);
    Tile::template load<kFmaOthers>(values, v_rows, key, extents.tokens, extents.size);
    __syncthreads();
    typename Tile::Scores s = tile.products(queries, keys);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float largest = -INFINITY, sum = 0;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        s.v[i][j] = key + tile.column + 16 * j < extents.tokens ? s.v[i][j] * extents.scale : -INFINITY;
        largest = fmaxf(largest, s.v[i][j]);
      }
      largest = fmaxf(most[i], max_of_row(largest));
      const float shrink = expf(most[i] - largest);
      most[i] = largest;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        s.v[i][j] = expf(s.v[i][j] - largest);
        sum += s.v[i][j];
      }
      total[i] = fmaf(total[i], shrink, sum);  // of this thread's columns
#pragma unroll
      for (int g = 0; g < Tile::kGroups; ++g) {
        float4& v = sums[g].v[i];
        v = make_float4(v.x * shrink, v.y * shrink, v.z * shrink, v.w * shrink);
      }
    }
    tile.store(scores, s);
    tile.add(scores, values, sums);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    total[i] = sum_of_row(total[i]);
    const int token = first + tile.row + 16 * i;
    if (lse != nullptr && tile.column == 0 && token < extents.tokens)
      lse[extents.first_row(block.sample_head) + token] = most[i] + logf(total[i]);
  }
  tile.write(extents.rows_of_output(o, block.sample_head), first, extents.tokens, extents.size, sums,
             [&](int i) { return 1.0f / total[i]; });
}

/// Both backward kernels: two tiles of own rows, two of others, and scores.
template <class T, int kSize, int kRows>
constexpr int kFmaBackwardBytes = (2 * FmaTile<T, kSize, kRows>::kOwnFloats +
                                   2 * FmaTile<T, kSize, kRows>::kOtherFloats +
                                   FmaTile<T, kSize, kRows>::kScoreFloats) *
                                  4;

/// dq of a block's 16·kRows queries, and their δ (batch, heads, tokens) for the next kernel.
template <class T, int kSize, int kRows>
__global__ void __launch_bounds__(kFmaThreads)
    attention_fma_grad_queries(AttentionExtents extents, int tiles, const T* __restrict__ qkv, const T* __restrict__ o,
                               const float* __restrict__ lse, const T* __restrict__ dout, T* __restrict__ dqkv,
                               float* __restrict__ deltas) {
  if (uses_mma<T>()) return;
  using Tile = FmaTile<T, kSize, kRows>;
  extern __shared__ uint4 shared[];
  float* const queries = reinterpret_cast<float*>(shared);
  float *const gradients = queries + Tile::kOwnFloats, *const keys = gradients + Tile::kOwnFloats,
               *const values = keys + Tile::kOtherFloats, *const scores = values + Tile::kOtherFloats;
  const BlockTile block(tiles);
  const int first = block.tile * Tile::kOwn;
  const std::int64_t first_row = extents.first_row(block.sample_head);
  const auto k_rows = extents.rows_of_qkv(qkv, block.sample_head, 1),
             v_rows = extents.rows_of_qkv(qkv, block.sample_head, 2);
  const auto o_rows = extents.rows_of_output(o, block.sample_head),
             g_rows = extents.rows_of_output(dout, block.sample_head);
  Tile::template load<Tile::kOwn>(queries, extents.rows_of_qkv(qkv, block.sample_head, 0), first, extents.tokens,
                                  extents.size);
  Tile::template load<Tile::kOwn>(gradients, g_rows, first, extents.tokens, extents.size);
  __syncthreads();
  const Tile tile;
  float delta[kRows], log_sum[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int token = first + tile.row + 16 * i;
    float sum = 0;
    log_sum[i] = INFINITY;  // P is 0 beyond the last token
    if (token < extents.tokens) {
      log_sum[i] = lse[first_row + token];
      for (int c = tile.column * 4; c < extents.size; c += 64) {
        float v[4];
        unpack<4>(o_rows.row(token) + c, v);
#pragma unroll
        for (int e = 0; e < 4; ++e) sum = fmaf(v[e], gradients[(tile.row + 16 * i) * Tile::kStride + c + e], sum);
      }
    }
    delta[i] = sum_of_row(sum);
    if (token < extents.tokens && tile.column == 0) deltas[first_row + token] = delta[i];
  }
  typename Tile::Sums sums[Tile::kGroups];
  for (int key = 0; key < extents.tokens; key += kFmaOthers) {
    __syncthreads();  // the keys and values before have been read
    Tile::template load<kFmaOthers>(keys, k_rows, key, extents.tokens, extents.size);
    Tile::template load<kFmaOthers>(values, v_rows, key, extents.tokens, extents.size);
    __syncthreads();
    typename Tile::Scores s = tile.products(queries, keys);
    const typename Tile::Scores dp = tile.products(gradients, values);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool inside = key + tile.column + 16 * j < extents.tokens;
        s.v[i][j] = inside ? expf(fmaf(s.v[i][j], extents.scale, -log_sum[i])) * (dp.v[i][j] - delta[i]) : 0.0f;
      }
    }
    tile.store(scores, s);
    tile.add(scores, keys, sums);
  }
  tile.write(extents.rows_of_qkv(dqkv, block.sample_head, 0), first, extents.tokens, extents.size, sums,
             [&](int) { return extents.scale; });
}

/// dk and dv of a block's 16·kRows keys.
template <class T, int kSize, int kRows>
__global__ void __launch_bounds__(kFmaThreads)
    attention_fma_grad_keys(AttentionExtents extents, int tiles, const T* __restrict__ qkv,
                            const float* __restrict__ lse, const T* __restrict__ dout, const float* __restrict__ deltas,
                            T* __restrict__ dqkv) {
  if (uses_mma<T>()) return;
  using Tile = FmaTile<T, kSize, kRows>;
  extern __shared__ uint4 shared[];
  float* const keys = reinterpret_cast<float*>(shared);
  float *const values = keys + Tile::kOwnFloats, *const queries = values + Tile::kOwnFloats,
               *const gradients = queries + Tile::kOtherFloats, *const scores = gradients + Tile::kOtherFloats;
  const BlockTile block(tiles);
  const int first = block.tile * Tile::kOwn;
  const std::int64_t first_row = extents.first_row(block.sample_head);
  const auto q_rows = extents.rows_of_qkv(qkv, block.sample_head, 0);
  const auto g_rows = extents.rows_of_output(dout, block.sample_head);
  Tile::template load<Tile::kOwn>(keys, extents.rows_of_qkv(qkv, block.sample_head, 1), first, extents.tokens,
                                  extents.size);
  Tile::template load<Tile::kOwn>(values, extents.rows_of_qkv(qkv, block.sample_head, 2), first, extents.tokens,
                                  extents.size);
  const Tile tile;
  typename Tile::Sums dk[Tile::kGroups], dv[Tile::kGroups];
  for (int query = 0; query < extents.tokens; query += kFmaOthers) {
    __syncthreads();  // the queries before have been read
    Tile::template load<kFmaOthers>(queries, q_rows, query, extents.tokens, extents.size);
    Tile::template load<kFmaOthers>(gradients, g_rows, query, extents.tokens, extents.size);
    __syncthreads();
    typename Tile::Scores p = tile.products(keys, queries), ds = tile.products(values, gradients);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int token = query + tile.column + 16 * j;
      const bool inside = token < extents.tokens;
      const float log_sum = inside ? lse[first_row + token] : INFINITY,
                  delta = inside ? deltas[first_row + token] : 0.0f;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        p.v[i][j] = inside ? expf(fmaf(p.v[i][j], extents.scale, -log_sum)) : 0.0f;
        ds.v[i][j] = inside ? p.v[i][j] * (ds.v[i][j] - delta) : 0.0f;
      }
    }
    tile.store(scores, p);
    tile.add(scores, gradients, dv);
    tile.store(scores, ds);
    tile.add(scores, queries, dk);
  }
  tile.write(extents.rows_of_qkv(dqkv, block.sample_head, 1), first, extents.tokens, extents.size, dk,
             [&](int) { return extents.scale; });
  tile.write(extents.rows_of_qkv(dqkv, block.sample_head, 2), first, extents.tokens, extents.size, dv,
             [](int) { return 1.0f; });
}

}  // namespace bantam::kernels::cuda
