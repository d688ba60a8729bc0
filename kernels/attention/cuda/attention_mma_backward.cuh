// Attention backward by tensor cores, for the half types. A warp owns 16 keys, whose dk and dv it sums over queries in
// registers. Up to 208 tokens a block has a whole head: dSᵀ passes through shared memory to warps that compute dq.
// Beyond, dq has a kernel of its own, whose warps own 16 queries, and scores are computed twice.
#pragma once

#include "bantam/kernels/attention/cuda/attention_mma.cuh"

namespace bantam::kernels::cuda {

/// δ = Σ do·o of rows [first, first + count), by all threads of a block; 0 from row `tokens` on.
template <class T, int kSize>
__device__ inline void sum_deltas(const HeadRows<const T>& o, const HeadRows<const T>& dout, int first, int count,
                                  const AttentionExtents& e, bool wide, float* deltas) {
  constexpr int kLanes = 8, kAtOnce = 4;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, step = static_cast<int>(blockDim.x) / kLanes;
  for (int row = static_cast<int>(threadIdx.x) / kLanes; row < count; row += kAtOnce * step) {
    float sum[kAtOnce] = {};
#pragma unroll
    for (int c = lane * 8; c < kSize; c += kLanes * 8) {
      uint4 left[kAtOnce], right[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int r = row + k * step;
        const bool inside = r < count && first + r < e.tokens;
        left[k] = load_eight(o.row(inside ? first + r : 0), inside ? c : kSize, e.size, wide);
        right[k] = load_eight(dout.row(inside ? first + r : 0), inside ? c : kSize, e.size, wide);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const std::uint32_t a[4] = {left[k].x, left[k].y, left[k].z, left[k].w};
        const std::uint32_t b[4] = {right[k].x, right[k].y, right[k].z, right[k].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 x = floats_of(HalfPair<T>::of(a[i])), y = floats_of(HalfPair<T>::of(b[i]));
          sum[k] = fmaf(x.x, y.x, fmaf(x.y, y.y, sum[k]));
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
#pragma unroll
      for (int apart = kLanes / 2; apart > 0; apart /= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], apart);
      if (lane == 0 && row + k * step < count) deltas[row + k * step] = sum[k];
    }
  }
}

/// One warp's 16 keys and their gradients. Where a head's rows are short, keys and values stay in registers.
template <class T, int kSize>
struct KeyRows {
  using Rows = MmaRows<T, kSize>;
  static constexpr bool kInRegisters = kSize <= 64;

  typename Rows::Sums dk = {}, dv = {};
  typename Rows::Operand keys, values;
  std::uint32_t key_rows, value_rows;  ///< in shared memory
  float scale;                         ///< of scores to powers of two
  int inside;                          ///< keys that are there

  __device__ KeyRows(std::uint32_t keys_at, std::uint32_t values_at, float scale_of_products, int keys_inside)
      : key_rows(keys_at), value_rows(values_at), scale(scale_of_products * kLog2OfE), inside(keys_inside) {
    if constexpr (kInRegisters) {
      Rows::load_operand(key_rows, keys);
      Rows::load_operand(value_rows, values);
    }
  }

  /// Products of these keys, or values, with 16 rows of queries, or of do.
  __device__ static void multiply(const typename Rows::Operand& own, std::uint32_t own_rows, std::uint32_t others,
                                  float (&sums)[2][4]) {
#pragma unroll
    for (int d = 0; d < Rows::kSteps; ++d) {
      std::uint32_t a[4], b[4];
      load_matrices(b, others + crossed_lane<Rows::kStride>() + d * 32);
      if constexpr (kInRegisters) {
        multiply_16<T>(sums[0], sums[1], own[d], b);
      } else {
        load_matrices(a, own_rows + straight_lane<Rows::kStride>() + d * 32);
        multiply_16<T>(sums[0], sums[1], a, b);
      }
    }
  }
  /// sums += transposed scores · 16 rows.
  __device__ static void accumulate(typename Rows::Sums& sums, const std::uint32_t (&scores)[4], std::uint32_t rows) {
#pragma unroll
    for (int n = 0; n < Rows::kSteps; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(b, rows + straight_lane<Rows::kStride>() + n * 32);
      multiply_16<T>(sums[2 * n], sums[2 * n + 1], scores, b);
    }
  }

  /// Adds 16 queries and their do, with lse in powers of two and δ. `ds`: dSᵀ, rounded, as an A operand.
  __device__ void add(std::uint32_t queries, std::uint32_t gradients, const float* log_sums, const float* deltas,
                      std::uint32_t (&ds)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float p[2][4] = {}, dp[2][4] = {};
    multiply(keys, key_rows, queries, p);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 log_sum = *reinterpret_cast<const float2*>(log_sums + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) p[j][i] = power_of_two(fmaf(p[j][i], scale, i % 2 == 0 ? -log_sum.x : -log_sum.y));
    }
    if (inside < 16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (lane / 4 + i / 2 * 8 >= inside) p[0][i] = p[1][i] = 0;
      }
    }
    std::uint32_t rounded[4];
    operand_of<T>(p[0], p[1], rounded);
    accumulate(dv, rounded, gradients);
    multiply(values, value_rows, gradients, dp);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(deltas + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) p[j][i] *= dp[j][i] - (i % 2 == 0 ? delta.x : delta.y);
    }
    operand_of<T>(p[0], p[1], ds);
    accumulate(dk, ds, queries);
  }

  /// Writes both gradients of keys from `first` on, by way of 16 rows that only this warp still uses.
  __device__ void write(const HeadRows<T>& dk_rows, const HeadRows<T>& dv_rows, T* staged, int first,
                        const AttentionExtents& e, bool wide) {
    __syncwarp();
    Rows::stage(staged, dv, 1.0f, 1.0f);
    Rows::write(dv_rows, staged, first, 16, e, wide);
    Rows::stage(staged, dk, e.scale, e.scale);
    Rows::write(dk_rows, staged, first, 16, e, wide);
  }
};

/// dSᵀ of 32 queries and all keys of a head, a key a row; rows of 80 bytes, eight of which lie in different banks.
inline constexpr int kScoreStride = 40;
inline constexpr int kScoreSlots = 3;

/// How a block of the whole-head kernel is made up.
struct WholeHeadPlan {
  __host__ __device__ explicit WholeHeadPlan(int tokens)
      : key_warps((tokens + 15) / 16), query_warps(key_warps < 7 ? 1 : kScoreSlots) {}

  __host__ __device__ int rows() const { return 16 * key_warps; }
  __host__ __device__ int query_tiles() const { return (key_warps + 1) / 2; }  ///< of 32
  __host__ __device__ int threads() const { return 32 * (key_warps + query_warps); }
  /// Queries, do, keys and values; dSᵀ; lse and δ.
  template <int kSize>
  int shared_bytes() const {
    return rows() * (4 * MmaRows<unsigned short, kSize>::kRowBytes + kScoreSlots * kScoreStride * 2 + 2 * 4);
  }

  int key_warps;    ///< each of 16 keys
  int query_warps;  ///< that compute dq; no slot of scores is read by two of them
};

/// dq of 32 queries from dSᵀ of all keys.
template <class T, int kSize>
struct QueryTile {
  using Rows = MmaRows<T, kSize>;
  typename Rows::Sums sums[2] = {};

  __device__ void add(std::uint32_t scores, std::uint32_t keys) {
    std::uint32_t a[2][4];
#pragma unroll
    for (int t = 0; t < 2; ++t) load_matrices_transposed(a[t], scores + crossed_lane<kScoreStride>() + t * 32);
#pragma unroll
    for (int n = 0; n < Rows::kSteps; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(b, keys + straight_lane<Rows::kStride>() + n * 32);
#pragma unroll
      for (int t = 0; t < 2; ++t) multiply_16<T>(sums[t][2 * n], sums[t][2 * n + 1], a[t], b);
    }
  }
};

/// A block has a sample and head: WholeHeadPlan(tokens).
template <class T, int kSize>
__global__ void __launch_bounds__(512, 1)
    attention_mma_whole_head(AttentionExtents e, bool wide, const T* __restrict__ qkv, const T* __restrict__ o,
                             const float* __restrict__ lse, const T* __restrict__ dout, T* __restrict__ dqkv) {
  if (!uses_mma<T>()) return;
  using Rows = MmaRows<T, kSize>;
  extern __shared__ uint4 shared[];
  const WholeHeadPlan plan(e.tokens);
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int sample_head = static_cast<int>(blockIdx.x), rows = plan.rows(), tiles = plan.query_tiles();
  T* const queries = reinterpret_cast<T*>(shared);
  T *const gradients = queries + rows * Rows::kStride, *const keys = gradients + rows * Rows::kStride,
           *const values = keys + rows * Rows::kStride;
  T* const scores = values + rows * Rows::kStride;  // kScoreSlots of `rows` rows
  float *const log_sums = reinterpret_cast<float*>(scores + kScoreSlots * rows * kScoreStride), *const deltas =
                                                                                                    log_sums + rows;
  const auto q_rows = e.rows_of_qkv(qkv, sample_head, 0);
  const auto o_rows = e.rows_of_output(o, sample_head), g_rows = e.rows_of_output(dout, sample_head);
  const int soon = min(rows, 32);  // queries that are waited for first
  Rows::copy(keys, e.rows_of_qkv(qkv, sample_head, 1), 0, rows, e, wide, thread, threads);
  Rows::copy(values, e.rows_of_qkv(qkv, sample_head, 2), 0, rows, e, wide, thread, threads);
  Rows::copy(queries, q_rows, 0, soon, e, wide, thread, threads);
  Rows::copy(gradients, g_rows, 0, soon, e, wide, thread, threads);
  commit_copies();
  Rows::copy(queries + soon * Rows::kStride, q_rows, soon, rows - soon, e, wide, thread, threads);
  Rows::copy(gradients + soon * Rows::kStride, g_rows, soon, rows - soon, e, wide, thread, threads);
  commit_copies();
  for (int i = thread; i < rows; i += threads)
    log_sums[i] = i < e.tokens ? lse[e.first_row(sample_head) + i] * kLog2OfE : 0.0f;
  sum_deltas<T, kSize>(o_rows, g_rows, 0, rows, e, wide, deltas);
  wait_for_groups<1>();
  __syncthreads();

  // Barriers: a slot of scores is full, and it has been read; all queries are there.
  constexpr int kFull = 1, kEmpty = kFull + kScoreSlots, kAllThere = kEmpty + kScoreSlots;
  const int meeting = 32 * (plan.key_warps + 1);
  const std::uint32_t slot_bytes = static_cast<std::uint32_t>(rows) * kScoreStride * 2;
  if (warp < plan.key_warps) {
    const int lane = thread % 32;
    T* const own_values = values + warp * 16 * Rows::kStride;
    KeyRows<T, kSize> own(shared_address(keys + warp * 16 * Rows::kStride), shared_address(own_values), e.scale,
                          e.tokens - warp * 16);
    T* const own_scores = scores + (warp * 16 + lane / 4) * kScoreStride + lane % 4 * 2;
#pragma unroll 1
    for (int tile = 0, slot = 0; tile < tiles; ++tile, slot = slot + 1 == kScoreSlots ? 0 : slot + 1) {
      if (tile == 1) {
        wait_for_groups<0>();
        wait_at_barrier(kAllThere, threads);
      }
      if (tile >= kScoreSlots) wait_at_barrier(kEmpty + slot, meeting);
      T* to = own_scores + slot * rows * kScoreStride;
#pragma unroll 1
      for (int query = tile * 32; query < min(tile * 32 + 32, rows); query += 16, to += 16) {
        std::uint32_t ds[4];
        own.add(shared_address(queries + query * Rows::kStride), shared_address(gradients + query * Rows::kStride),
                log_sums + query, deltas + query, ds);
        *reinterpret_cast<std::uint32_t*>(to) = ds[0];
        *reinterpret_cast<std::uint32_t*>(to + 8 * kScoreStride) = ds[1];
        *reinterpret_cast<std::uint32_t*>(to + 8) = ds[2];
        *reinterpret_cast<std::uint32_t*>(to + 8 * kScoreStride + 8) = ds[3];
      }
      arrive_at_barrier(kFull + slot, meeting);
    }
    own.write(e.rows_of_qkv(dqkv, sample_head, 1), e.rows_of_qkv(dqkv, sample_head, 2), own_values, warp * 16, e, wide);
  } else {
    if (tiles > 1) {
      wait_for_groups<0>();
      wait_at_barrier(kAllThere, threads);
    }
    const auto dq_rows = e.rows_of_qkv(dqkv, sample_head, 0);
#pragma unroll 1
    for (int tile = warp - plan.key_warps; tile < tiles; tile += plan.query_warps) {
      const int slot = tile % kScoreSlots;
      wait_at_barrier(kFull + slot, meeting);
      QueryTile<T, kSize> dq;
      std::uint32_t score_rows = shared_address(scores) + slot * slot_bytes, key_rows = shared_address(keys);
#pragma unroll 2
      for (int step = 0; step < plan.key_warps; ++step) {
        dq.add(score_rows, key_rows);
        score_rows += 16 * kScoreStride * 2;
        key_rows += 16 * Rows::kRowBytes;
      }
      if (tile + kScoreSlots < tiles) arrive_at_barrier(kEmpty + slot, meeting);
      // No warp reads the tile's queries any more.
      T* const staged = queries + tile * 32 * Rows::kStride;
      const int count = min(32, rows - tile * 32);
      Rows::stage(staged, dq.sums[0], e.scale, e.scale);
      if (count == 32) Rows::stage(staged + 16 * Rows::kStride, dq.sums[1], e.scale, e.scale);
      Rows::write(dq_rows, staged, tile * 32, count, e, wide);
    }
  }
}

/// Warps of a block of either kernel.
inline constexpr int kGradientWarps = 4;
/// Keys and values of a chunk of the kernel of dq; queries of one of the kernel of dk and dv.
template <int kSize>
inline constexpr int kGradientKeys = kSize <= 64 ? 64 : 32;
template <int kSize>
inline constexpr int kGradientQueries = kSize <= 64 ? 32 : 16;

/// A block's queries and do, the ring, and lse and δ of its queries.
template <int kSize>
constexpr int grad_queries_shared_bytes(int warps, int ring_rows) {
  return (2 * warps * 16 + 2 * ring_rows) * MmaRows<unsigned short, kSize>::kRowBytes + 2 * warps * 16 * 4;
}

/// One warp's 16 queries and their gradient.
template <class T, int kSize>
struct QueryRows {
  using Rows = MmaRows<T, kSize>;

  typename Rows::Sums dq = {};
  typename Rows::Operand queries, gradients;
  float log_sum[2], delta[2];  ///< of the lane's two rows, in powers of two
  float scale;                 ///< of scores to powers of two

  /// Adds 16 keys and values, of which the first `inside` are there.
  __device__ void add(std::uint32_t keys, std::uint32_t values, int inside) {
    float p[2][4] = {}, dp[2][4] = {};
#pragma unroll
    for (int d = 0; d < Rows::kSteps; ++d) {
      std::uint32_t b[4];
      load_matrices(b, keys + crossed_lane<Rows::kStride>() + d * 32);
      multiply_16<T>(p[0], p[1], queries[d], b);
    }
#pragma unroll
    for (int d = 0; d < Rows::kSteps; ++d) {
      std::uint32_t b[4];
      load_matrices(b, values + crossed_lane<Rows::kStride>() + d * 32);
      multiply_16<T>(dp[0], dp[1], gradients[d], b);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[j][i] = power_of_two(fmaf(p[j][i], scale, -log_sum[i / 2])) * (dp[j][i] - delta[i / 2]);
    }
    if (inside < 16) {
      const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (j * 8 + column + i % 2 >= inside) p[j][i] = 0;
        }
      }
    }
    std::uint32_t ds[4];
    operand_of<T>(p[0], p[1], ds);
#pragma unroll
    for (int n = 0; n < Rows::kSteps; ++n) {
      std::uint32_t b[4];
      load_matrices_transposed(b, keys + straight_lane<Rows::kStride>() + n * 32);
      multiply_16<T>(dq[2 * n], dq[2 * n + 1], ds, b);
    }
  }
};

/// dq of a block's queries, 16 a warp, of one sample and head; and their δ (batch, heads, tokens) for the next kernel.
template <class T, int kSize>
__global__ void __launch_bounds__(32 * kGradientWarps, kSize <= 64 ? 4 : 2)
    attention_mma_grad_queries(AttentionExtents e, RingPlan plan, const T* __restrict__ qkv, const T* __restrict__ o,
                               const float* __restrict__ lse, const T* __restrict__ dout, T* __restrict__ dqkv,
                               float* __restrict__ to_deltas) {
  if (!uses_mma<T>()) return;
  using Rows = MmaRows<T, kSize>;
  constexpr int kKeys = kGradientKeys<kSize>;
  extern __shared__ uint4 shared[];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int lane = thread % 32;
  const BlockTile block(plan.tiles);
  const int own = threads / 32 * 16, first = block.tile * own;
  const std::int64_t first_row = e.first_row(block.sample_head);
  T* const queries = reinterpret_cast<T*>(shared);
  T *const gradients = queries + own * Rows::kStride, *const keys = gradients + own * Rows::kStride,
           *const values = keys + plan.rows * Rows::kStride;
  float *const log_sums = reinterpret_cast<float*>(values + plan.rows * Rows::kStride), *const deltas = log_sums + own;
  const auto k_rows = e.rows_of_qkv(qkv, block.sample_head, 1), v_rows = e.rows_of_qkv(qkv, block.sample_head, 2);
  const auto o_rows = e.rows_of_output(o, block.sample_head), g_rows = e.rows_of_output(dout, block.sample_head);
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
  Rows::copy(gradients, g_rows, first, own, e, plan.wide, thread, threads);
  for (int chunk = 0; chunk < plan.stages - 1; ++chunk) load(chunk);
  if (thread < own) log_sums[thread] = first + thread < e.tokens ? lse[first_row + first + thread] * kLog2OfE : 0.0f;
  sum_deltas<T, kSize>(o_rows, g_rows, first, own, e, plan.wide, deltas);
  wait_for_chunk(plan.stages);
  if (thread < own && first + thread < e.tokens) to_deltas[first_row + first + thread] = deltas[thread];
  QueryRows<T, kSize> rows;
  T* const mine = queries + warp * 16 * Rows::kStride;
  Rows::load_operand(shared_address(mine), rows.queries);
  Rows::load_operand(shared_address(gradients + warp * 16 * Rows::kStride), rows.gradients);
  rows.scale = e.scale * kLog2OfE;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows.log_sum[h] = log_sums[warp * 16 + h * 8 + lane / 4];
    rows.delta[h] = deltas[warp * 16 + h * 8 + lane / 4];
  }
#pragma unroll 1
  for (int chunk = 0;;) {
    load(chunk + plan.stages - 1);
    const std::uint32_t at = chunk % plan.stages * kKeys * Rows::kRowBytes;
    std::uint32_t key_rows = shared_address(keys) + at, value_rows = shared_address(values) + at;
#pragma unroll 1
    for (int left = min(kKeys, e.tokens - chunk * kKeys); left > 0; left -= 16) {
      rows.add(key_rows, value_rows, left);
      key_rows += 16 * Rows::kRowBytes;
      value_rows += 16 * Rows::kRowBytes;
    }
    if (++chunk == chunks) break;
    wait_for_chunk(plan.stages);
  }
  __syncwarp();
  Rows::stage(mine, rows.dq, e.scale, e.scale);
  Rows::write(e.rows_of_qkv(dqkv, block.sample_head, 0), mine, first + warp * 16, 16, e, plan.wide);
}

/// A block's keys and values, the ring, and lse and δ of its queries.
template <int kSize>
constexpr int grad_keys_shared_bytes(int warps, int ring_rows) {
  return (2 * warps * 16 + 2 * ring_rows) * MmaRows<unsigned short, kSize>::kRowBytes + 2 * ring_rows * 4;
}

/// dk and dv of a block's keys, 16 a warp, of one sample and head.
template <class T, int kSize>
__global__ void __launch_bounds__(32 * kGradientWarps, kSize <= 64 ? 4 : 2)
    attention_mma_grad_keys(AttentionExtents e, RingPlan plan, const T* __restrict__ qkv, const float* __restrict__ lse,
                            const T* __restrict__ dout, const float* __restrict__ from_deltas, T* __restrict__ dqkv) {
  if (!uses_mma<T>()) return;
  using Rows = MmaRows<T, kSize>;
  constexpr int kQueries = kGradientQueries<kSize>;
  extern __shared__ uint4 shared[];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const BlockTile block(plan.tiles);
  const int own = threads / 32 * 16, first = block.tile * own;
  const std::int64_t first_row = e.first_row(block.sample_head);
  T* const keys = reinterpret_cast<T*>(shared);
  T *const values = keys + own * Rows::kStride, *const queries = values + own * Rows::kStride,
           *const gradients = queries + plan.rows * Rows::kStride;
  float *const log_sums = reinterpret_cast<float*>(gradients + plan.rows * Rows::kStride), *const deltas =
                                                                                               log_sums + plan.rows;
  const auto q_rows = e.rows_of_qkv(qkv, block.sample_head, 0);
  const auto g_rows = e.rows_of_output(dout, block.sample_head);
  const int chunks = (e.tokens + kQueries - 1) / kQueries;
  // Copies of a chunk; and its lse and δ, a thread a row, which are stored when the chunk before them has been used.
  float log_sum = 0, delta = 0;
  const auto load = [&](int chunk) {
    if (chunk < chunks) {
      const int at = chunk % plan.stages * kQueries * Rows::kStride, query = chunk * kQueries;
      const int count = min(kQueries, (e.tokens - query + 15) / 16 * 16);
      Rows::copy(queries + at, q_rows, query, count, e, plan.wide, thread, threads);
      Rows::copy(gradients + at, g_rows, query, count, e, plan.wide, thread, threads);
      const bool inside = thread < kQueries && query + thread < e.tokens;
      log_sum = inside ? lse[first_row + query + thread] * kLog2OfE : 0.0f;
      delta = inside ? from_deltas[first_row + query + thread] : 0.0f;
    }
    commit_copies();
  };
  const auto store_vectors = [&](int chunk) {
    const int at = chunk % plan.stages * kQueries + thread;
    if (chunk < chunks && thread < kQueries && at < plan.rows) log_sums[at] = log_sum, deltas[at] = delta;
  };
  Rows::copy(keys, e.rows_of_qkv(qkv, block.sample_head, 1), first, own, e, plan.wide, thread, threads);
  Rows::copy(values, e.rows_of_qkv(qkv, block.sample_head, 2), first, own, e, plan.wide, thread, threads);
  for (int chunk = 0; chunk < plan.stages - 1; ++chunk) {
    load(chunk);
    store_vectors(chunk);
  }
  wait_for_chunk(plan.stages);
  T* const own_values = values + warp * 16 * Rows::kStride;
  KeyRows<T, kSize> rows(shared_address(keys + warp * 16 * Rows::kStride), shared_address(own_values), e.scale,
                         e.tokens - first - warp * 16);
#pragma unroll 1
  for (int chunk = 0;;) {
    load(chunk + plan.stages - 1);
    int at = chunk % plan.stages * kQueries;
#pragma unroll 1
    for (int left = min(kQueries, e.tokens - chunk * kQueries); left > 0; left -= 16, at += 16) {
      std::uint32_t ds[4];
      rows.add(shared_address(queries + at * Rows::kStride), shared_address(gradients + at * Rows::kStride),
               log_sums + at, deltas + at, ds);
    }
    store_vectors(chunk + plan.stages - 1);
    if (++chunk == chunks) break;
    wait_for_chunk(plan.stages);
  }
  rows.write(e.rows_of_qkv(dqkv, block.sample_head, 1), e.rows_of_qkv(dqkv, block.sample_head, 2), own_values,
             first + warp * 16, e, plan.wide);
}

}  // namespace bantam::kernels::cuda
