// The small kernels of the algebra, four launches a block: from the Gram parts to statistics, from P to gradients and
// the reduce kernel's operands. float32's digits by two half products: W is half as stored, the other side is hi + lo.
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a small.cu
#include "tiles.cuh"

using namespace probe;

struct Small {
  int gram_parts, sum_parts, dz_parts, gradient_blocks;
  float n;
  // forward
  const float *gram, *sums;       ///< (gram_parts, c, c); Σa: (sum_parts, c)
  const __half* w;                ///< (out, c)
  const float *gamma, *beta;      ///< (out)
  float *d, *cov, *column_scale;  ///< mean of a; C, float32 (kept); the factor of a column of hi + lo
  __half *high, *low;             ///< C, scaled: (c, c)
  float *t, *var, *r, *k, *b;     ///< T3 (out, c); (out)
  // backward
  const float *p, *dz_sums;    ///< (out, c); (dz_parts, out)
  float *dgamma, *dbeta, *dw;  ///< (out), (out), (out, c)
  float *s, *widest;           ///< k·r·m; max |w| of a row: (out)
  float* row_parts;            ///< -Σdz/N·k⊙W: (gradient_blocks, c)
  __half* stacked;             ///< [-M·scale ; k⊙W/ρ]: (c + out, c)
  float* scales;               ///< 1 / (scale·ρ), ρ
  float* row;                  ///< the constant row, in parts: (c / 16 + 1, c)
  float* exact_m;              ///< M before it is rounded, or null: for checks
};

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int w = 16; w > 0; w /= 2) v += __shfl_xor_sync(0xffffffffu, v, w);
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int w = 16; w > 0; w /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, w));
  return v;
}
/// 2^e so that v·2^e is in [2^(bits - 1), 2^bits); 1 for 0.
__device__ inline float scale_to(float v, int bits) {
  if (!(v > 0.0f)) return 1.0f;
  int exponent = 0;
  frexpf(v, &exponent);
  return ldexpf(1.0f, min(max(bits - exponent, -120), 120));
}
/// Reduces over a block of kThreads; every thread gets the result. `shared`: a float a warp.
template <int kThreads, bool kMaximum>
__device__ inline float block_all(float v, float* shared) {
  v = kMaximum ? warp_max(v) : warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float all = shared[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) all = kMaximum ? fmaxf(all, shared[w]) : all + shared[w];
  return all;
}
/// Σ over parts of from[part·stride + column], parts way, way + ways, ... in order.
__device__ inline float add_parts(const float* from, i64 stride, int parts, int way, int ways) {
  float sum = 0;
#pragma unroll 8
  for (int p = way; p < parts; p += ways) sum += from[p * stride];
  return sum;
}

// ---- 1: d, C, and C as hi + lo. Clusters of 8 blocks; a block has kRows rows ----

template <int kC>
__global__ void __launch_bounds__(256) covariance_kernel(const Small m) {
  constexpr int kRows = kC < 128 ? 1 : kC / 128, kSlice = kC / 8, kWays = 256 / kSlice;
  constexpr int kRowWays = kC < 256 ? 256 / kC : 1, kEach = kC < 256 ? 1 : kC / 256;
  __shared__ float partial[256], slice[kSlice], d[kC], maxima[8];
  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(blockIdx.x) % 8;
  let_next_start();
  wait_for_kernel_before();
  const int first = static_cast<int>(blockIdx.x) * kRows;
  // the Gram's rows are on their way while the means are made
  float gram[kRows][kEach];
#pragma unroll
  for (int row = 0; row < kRows; ++row)
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      gram[row][e] = add_parts(m.gram + i64{first + row} * kC + thread % kC + 256 * e, i64{kC} * kC, m.gram_parts,
                               thread / kC, kRowWays);
  partial[thread] = add_parts(m.sums + rank * kSlice + thread % kSlice, kC, m.sum_parts, thread / kSlice, kWays);
  __syncthreads();
  if (thread < kSlice) {
    float sum = 0;
    for (int w = 0; w < kWays; ++w) sum += partial[w * kSlice + thread];
    slice[thread] = sum / m.n;
  }
  cluster_sync();
  for (int c = thread; c < kC; c += 256) {
    d[c] = load_of_rank(shared_address(slice + c % kSlice), static_cast<u32>(c / kSlice));
    if (blockIdx.x == 0) m.d[c] = d[c];
  }
  __syncthreads();
  for (int row = 0; row < kRows; ++row) {
    const int i = first + row;
    if constexpr (kRowWays > 1) {
      __syncthreads();
      partial[thread] = gram[row][0];
      __syncthreads();
      gram[row][0] = 0;
      if (thread < kC)
        for (int w = 0; w < kRowWays; ++w) gram[row][0] += partial[w * kC + thread];
    }
    float most = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int j = thread % kC + 256 * e;
      gram[row][e] = kRowWays == 1 || thread < kC ? gram[row][e] / m.n - d[i] * d[j] : 0.0f;
      most = fmaxf(most, fabsf(gram[row][e]));
    }
    const float scale = scale_to(block_all<256, true>(most, maxima), 15);
    if (thread == 0) m.column_scale[i] = 1.0f / scale;
    if (kRowWays > 1 && thread >= kC) continue;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const i64 at = i64{i} * kC + thread % kC + 256 * e;
      const float v = gram[row][e] * scale;
      const __half high = __float2half_rn(v);
      m.cov[at] = gram[row][e];
      m.high[at] = high;
      m.low[at] = __float2half_rn(v - __half2float(high));
    }
  }
  cluster_sync();
}

// ---- 2: T3 = W·C, var, r, k, b. A block has 64·kGroups rows x 64 columns; a cluster the row's columns ----

template <int kC, int kGroups>
struct StatisticsTile {
  static constexpr int kDepths = kC / 64, kStages = kDepths < 6 ? kDepths : 6, kRows = 64 * kGroups;
  static constexpr int kLeft = kGroups * 8192, kStageBytes = kLeft + 2 * 8192, kBytes = kStages * kStageBytes;
};
template <int kC, int kGroups>
__global__ void __launch_bounds__(kGroups * 128 + 32)
    statistics_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap high,
                      const __grid_constant__ CUtensorMap low, const Small m) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = StatisticsTile<kC, kGroups>;
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) u64 barriers[12];
  __shared__ float vars[Tile::kRows], means[Tile::kRows], d[64], scale[64];
  const u32 base = (shared_address(memory) + 1023) / 1024 * 1024;
  const auto full = [&](int s) { return SharedBarrier{shared_address(barriers + s)}; };
  const auto empty = [&](int s) { return SharedBarrier{shared_address(barriers + 6 + s)}; };
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kCluster = kC / 64;
  const int block = static_cast<int>(blockIdx.x) % kCluster,
            first = static_cast<int>(blockIdx.x) / kCluster * Tile::kRows;
  if (thread == 0) {
    for (int s = 0; s < Tile::kStages; ++s) full(s).init(1), empty(s).init(4 * kGroups);
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const bool loads = thread == kGroups * 128;
  const auto left = [&](int depth, int s) {
    full(s).arrive_expecting(Tile::kStageBytes);
    for (int g = 0; g < kGroups; ++g)
      load_box(base + s * Tile::kStageBytes + g * 8192, w, depth * 64, first + g * 64, full(s));
  };
  const auto right = [&](int depth, int s) {
    load_box(base + s * Tile::kStageBytes + Tile::kLeft, high, depth * 64, block * 64, full(s));
    load_box(base + s * Tile::kStageBytes + Tile::kLeft + 8192, low, depth * 64, block * 64, full(s));
  };
  if (loads)
    for (int s = 0; s < Tile::kStages; ++s) left(s, s);
  wait_for_kernel_before();
  if (loads)
    for (int s = 0; s < Tile::kStages; ++s) right(s, s);
  const int group = thread / 128, lane = thread % 32, warp = thread % 128 / 32;
  if (thread < 64) d[thread] = m.d[block * 64 + thread], scale[thread] = m.column_scale[block * 64 + thread];
  __syncthreads();
  if (loads)
    for (int depth = Tile::kStages; depth < Tile::kDepths; ++depth) {
      empty(depth - Tile::kStages).wait(0, 1);
      left(depth, depth - Tile::kStages), right(depth, depth - Tile::kStages);
    }
  if (group < kGroups) {
    float sums[32];
#pragma unroll
    for (int depth = 0; depth < Tile::kDepths; ++depth) {
      const int s = depth % Tile::kStages;
      full(s).wait(depth / Tile::kStages, 2);
      const u64 a = operand_at(base + s * Tile::kStageBytes + group * 8192);
      const u64 b = operand_at(base + s * Tile::kStageBytes + Tile::kLeft),
                e = operand_at(base + s * Tile::kStageBytes + Tile::kLeft + 8192);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        WarpgroupMma<64>::run(sums, a + k * kNextSixteen, e + k * kNextSixteen, depth > 0 || k > 0);
        WarpgroupMma<64>::run(sums, a + k * kNextSixteen, b + k * kNextSixteen, true);
      }
      commit_products();
      if (depth > 0) {
        wait_for_products<1>();
        if (lane == 0) empty((depth - 1) % Tile::kStages).arrive();
      }
    }
    wait_for_products<0>();
    products_done(sums);
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int row = group * 64 + warp * 16 + lane / 4 + 8 * upper;
      const i64 at = i64{first + row} * kC + block * 64 + lane % 4 * 2;
      float mean = 0, var = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int c = 8 * j + lane % 4 * 2;
        const float2 v = __half22float2(*reinterpret_cast<const __half2*>(m.w + at + 8 * j));
        const float2 t = {sums[4 * j + 2 * upper] * scale[c], sums[4 * j + 2 * upper + 1] * scale[c + 1]};
        *reinterpret_cast<float2*>(m.t + at + 8 * j) = t;
        mean = fmaf(v.x, d[c], fmaf(v.y, d[c + 1], mean));
        var = fmaf(v.x, t.x, fmaf(v.y, t.y, var));
      }
#pragma unroll
      for (int away = 1; away < 4; away *= 2) {
        mean += __shfl_xor_sync(0xffffffffu, mean, away);
        var += __shfl_xor_sync(0xffffffffu, var, away);
      }
      if (lane % 4 == 0) vars[row] = var, means[row] = mean;
    }
  }
  __syncwarp();
  cluster_sync();
  constexpr int kMine = Tile::kRows / kCluster;
  if (thread < kMine) {
    const int row = block * kMine + thread;
    float var = 0, mean = 0;
#pragma unroll
    for (u32 rank = 0; rank < kCluster; ++rank) {
      var += load_of_rank(shared_address(vars + row), rank);
      mean += load_of_rank(shared_address(means + row), rank);
    }
    const int o = first + row;
    var = fmaxf(var, 0.0f);
    const float r = 1.0f / sqrtf(var + 1e-5f), k = m.gamma[o] * r;
    m.var[o] = var, m.r[o] = r, m.k[o] = k, m.b[o] = fmaf(-mean, k, m.beta[o]);
  }
  cluster_sync();
#else
  __trap();
#endif
}

// ---- 3: m, dγ, dβ, dW, k⊙W/ρ, and its part of the constant row. A warp has kEach rows ----

template <int kC>
__global__ void __launch_bounds__(256) gradients_kernel(const Small m) {
  constexpr int kEach = kC < 512 ? 1 : 2, kRows = 8 * kEach, kPairs = kC / 64, kOut = 4 * kC, kWays = 256 / kRows;
  __shared__ float partial[256], dz[kRows], columns[8][kC], maxima[8];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int first = static_cast<int>(blockIdx.x) * kRows;
  let_next_start();
  float2 w[kEach][kPairs];
#pragma unroll
  for (int e = 0; e < kEach; ++e)
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      w[e][i] = __half22float2(
          *reinterpret_cast<const __half2*>(m.w + i64{first + warp * kEach + e} * kC + 64 * i + 2 * lane));
  wait_for_kernel_before();
  float2 p[kEach][kPairs], d[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    d[i] = *reinterpret_cast<const float2*>(m.d + 64 * i + 2 * lane);
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      p[e][i] = *reinterpret_cast<const float2*>(m.p + i64{first + warp * kEach + e} * kC + 64 * i + 2 * lane);
  }
  partial[thread] = add_parts(m.dz_sums + first + thread % kRows, kOut, m.dz_parts, thread / kRows, kWays);
  float most = 0;
  for (int o = thread; o < kOut; o += 256) most = fmaxf(most, fabsf(m.k[o]));
  most = block_all<256, true>(most, maxima);
  const float rho = 1.0f / scale_to(most, 0);  // the power of two above
  if (thread < kRows) {
    float sum = 0;
    for (int way = 0; way < kWays; ++way) sum += partial[way * kRows + thread];
    dz[thread] = sum;
    m.dbeta[first + thread] = sum;
  }
  if (blockIdx.x == 0 && thread == 0) m.scales[1] = rho;
  __syncthreads();
  float2 column[kPairs] = {};
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int o = first + warp * kEach + e;
    const float sum = dz[warp * kEach + e], r = m.r[o], k = m.k[o];
    float product = 0, widest = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      p[e][i].x = fmaf(-sum, d[i].x, p[e][i].x), p[e][i].y = fmaf(-sum, d[i].y, p[e][i].y);
      product = fmaf(w[e][i].x, p[e][i].x, fmaf(w[e][i].y, p[e][i].y, product));
      widest = fmaxf(widest, fmaxf(fabsf(w[e][i].x), fabsf(w[e][i].y)));
    }
    product = warp_sum(product), widest = warp_max(widest);
    const float mean = product * (r / m.n), along = product * r * r;  // N·m·r
    if (lane == 0) m.dgamma[o] = product * r, m.s[o] = k * r * mean, m.widest[o] = widest;
    const float share = -sum / m.n * rho, small_k = k / rho;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const i64 at = i64{o} * kC + 64 * i + 2 * lane;
      const float2 t = *reinterpret_cast<const float2*>(m.t + at);
      *reinterpret_cast<float2*>(m.dw + at) = {k * fmaf(-along, t.x, p[e][i].x), k * fmaf(-along, t.y, p[e][i].y)};
      const __half2 kw = __floats2half2_rn(small_k * w[e][i].x, small_k * w[e][i].y);
      *reinterpret_cast<__half2*>(m.stacked + i64{kC} * kC + at) = kw;
      const float2 v = __half22float2(kw);
      column[i].x = fmaf(share, v.x, column[i].x), column[i].y = fmaf(share, v.y, column[i].y);
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) *reinterpret_cast<float2*>(&columns[warp][64 * i + 2 * lane]) = column[i];
  __syncthreads();
  for (int c = thread; c < kC; c += 256) {
    float sum = 0;
#pragma unroll
    for (int way = 0; way < 8; ++way) sum += columns[way][c];
    m.row_parts[i64{blockIdx.x} * kC + c] = sum;
  }
}

// ---- 4: M = Wᵀ·diag(s)·W and the constant row. A cluster of 4 blocks has a tile of 64 x 64 of the lower triangle ----

template <int kC>
struct ProductTile {
  static constexpr int kDepths = kC / 64, kStages = kDepths < 4 ? kDepths : 4, kStageBytes = 3 * 8192, kPitch = 65;
  static constexpr int kBlocks = kDepths * (kDepths + 1) / 2 * 4;
  static constexpr int kBytes = kStages * kStageBytes + 1024;
};
template <int kC>
__global__ void __launch_bounds__(128) product_kernel(const __grid_constant__ CUtensorMap w, const Small m) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = ProductTile<kC>;
  constexpr int kOut = 4 * kC, kPitch = Tile::kPitch;
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(8) u64 barriers[4];
  __shared__ float s[kC], part[16][64 + 1], sum_ways[128], maxima[4];
  const u32 base = (shared_address(memory) + 1023) / 1024 * 1024;
  const auto full = [&](int i) { return SharedBarrier{shared_address(barriers + i)}; };
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x) % 4;
  int upper = static_cast<int>(blockIdx.x) / 4, lower = 0;  // tile rows, columns: rows >= columns
  {
    int row = 0;
    while (upper > row) upper -= ++row;
    lower = upper, upper = row;
  }
  if (thread == 0) {
    for (int i = 0; i < Tile::kStages; ++i) full(i).init(1);
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const auto bring = [&](int depth) {
    const int i = depth % Tile::kStages, row = rank * kC + depth * 64;
    full(i).arrive_expecting(2 * 8192);
    load_box(base + i * Tile::kStageBytes, w, upper * 64, row, full(i));
    load_box(base + i * Tile::kStageBytes + 8192, w, lower * 64, row, full(i));
  };
  if (thread == 0)
    for (int depth = 0; depth < Tile::kStages; ++depth) bring(depth);
  wait_for_kernel_before();
  float most = 0, bound = 0;
  for (int o = thread; o < kOut; o += 128) {
    const float of = fabsf(m.s[o]), widest = m.widest[o];
    most = fmaxf(most, of * widest);
    bound = fmaf(of * widest, widest, bound);
  }
  for (int o = thread; o < kC; o += 128) s[o] = m.s[rank * kC + o];
  const float sigma = scale_to(block_all<128, true>(most, maxima), 14);
  const float half_scale = scale_to(block_all<128, false>(bound, maxima), 14);
  float sums[32];
#pragma unroll
  for (int depth = 0; depth < Tile::kDepths; ++depth) {
    const int i = depth % Tile::kStages;
    const u32 left = base + i * Tile::kStageBytes, high = left + 8192, low = high + 8192;
    full(i).wait(depth / Tile::kStages, 1);
#pragma unroll
    for (int q = 0; q < 4; ++q) {  // s⊙W as hi + lo, in place
      const int row = thread / 8 + 16 * q;
      const u32 at = row * 128 + thread % 8 * 16;
      const float by = s[depth * 64 + row] * sigma;
      const uint4 words = load_words(high + at);
      const u32 from[4] = {words.x, words.y, words.z, words.w};
      u32 h[4], l[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float2 v = unpack_pair(from[e]);
        v.x *= by, v.y *= by;
        h[e] = pack_pair(v.x, v.y);
        const float2 rest = unpack_pair(h[e]);
        l[e] = pack_pair(v.x - rest.x, v.y - rest.y);
      }
      store_words(high + at, {h[0], h[1], h[2], h[3]});
      store_words(low + at, {l[0], l[1], l[2], l[3]});
    }
    publish_to_copies();
    __syncthreads();
    if (depth >= 2 && depth + 2 < Tile::kDepths && depth - 2 + Tile::kStages < Tile::kDepths && thread == 0)
      bring(depth - 2 + Tile::kStages);  // the products of depth - 2 have been waited for by all
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      WarpgroupMma<64, 1, 1>::run(sums, columns_at(left) + k * kNextSixteenRows, columns_at(low) + k * kNextSixteenRows,
                                  depth > 0 || k > 0);
      WarpgroupMma<64, 1, 1>::run(sums, columns_at(left) + k * kNextSixteenRows,
                                  columns_at(high) + k * kNextSixteenRows, true);
    }
    commit_products();
    wait_for_products<1>();
  }
  wait_for_products<0>();
  products_done(sums);
  __syncthreads();
  float* const tile =
      reinterpret_cast<float*>(memory + (base - shared_address(memory)));  // (64, kPitch), over the stages
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      tile[(warp * 16 + lane / 4 + 8 * (i / 2)) * kPitch + 8 * j + lane % 4 * 2 + i % 2] = sums[4 * j + i];
  cluster_sync();
  // this block: 16 rows of the sum of the four
  const bool diagonal = upper == lower;
  const float back = 1.0f / half_scale;
  for (int i = thread; i < 16 * 64; i += 128) {
    const int row = rank * 16 + i / 64, column = i % 64;
    float v = 0;
#pragma unroll
    for (u32 from = 0; from < 4; ++from) v += load_of_rank(shared_address(tile + row * kPitch + column), from);
    v /= sigma;
    const __half stored = __float2half_rn(-v * half_scale);
    const int r = upper * 64 + row, c = lower * 64 + column;
    m.stacked[i64{r} * kC + c] = stored;
    if (!diagonal) m.stacked[i64{c} * kC + r] = stored;
    if (m.exact_m != nullptr) {
      m.exact_m[i64{r} * kC + c] = v;
      if (!diagonal) m.exact_m[i64{c} * kC + r] = v;
    }
    part[i / 64][column] = -__half2float(stored) * back;
  }
  if (diagonal) {  // the part of k⊙W: 16 columns, 8 ways
    const int column = upper * 64 + rank * 16 + thread % 16;
    sum_ways[thread] = add_parts(m.row_parts + column, kC, m.gradient_blocks, thread / 16, 8);
  }
  __syncthreads();
  if (diagonal && thread < 16) {
    float sum = 0;
    for (int way = 0; way < 8; ++way) sum += sum_ways[way * 16 + thread];
    m.row[i64{kC / 16} * kC + upper * 64 + rank * 16 + thread] = sum;
  }
  if (thread < 64) {  // row of the columns: Σ over these 16 rows of d·M
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum = fmaf(m.d[upper * 64 + rank * 16 + i], part[i][thread], sum);
    m.row[i64{upper * 4 + rank} * kC + lower * 64 + thread] = sum;
  } else if (!diagonal && thread < 80) {  // and of these 16 columns of the other half
    const int i = thread - 64, column = upper * 64 + rank * 16 + i;
    float sum = 0;
#pragma unroll 8
    for (int j = 0; j < 64; ++j) sum = fmaf(m.d[lower * 64 + j], part[i][j], sum);
    for (int slot = 0; slot < 4; ++slot) m.row[i64{lower * 4 + slot} * kC + column] = slot == 0 ? sum : 0.0f;
  }
  if (blockIdx.x == 0 && thread == 0) m.scales[0] = back / m.scales[1];
  cluster_sync();
#else
  __trap();
#endif
}

// ---- the rest ----

/// Gram and sums of parts of rows of x, float32.
__global__ void gram_parts_kernel(const __half* x, int c, int rows_each, float* gram) {
  const int i = static_cast<int>(blockIdx.x), part = static_cast<int>(blockIdx.y);
  for (int j = static_cast<int>(threadIdx.x); j < c; j += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int r = 0; r < rows_each; ++r) {
      const __half* const row = x + (i64{part} * rows_each + r) * c;
      sum = fmaf(__half2float(row[i]), __half2float(row[j]), sum);
    }
    gram[(i64{part} * c + i) * c + j] = sum;
  }
}
__global__ void sum_parts_kernel(const __half* x, int c, int rows_each, float* sums) {
  for (int j = static_cast<int>(threadIdx.x); j < c; j += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int r = 0; r < rows_each; ++r) sum += __half2float(x[(i64{blockIdx.x} * rows_each + r) * c + j]);
    sums[i64{blockIdx.x} * c + j] = sum;
  }
}

cudaStream_t g_stream;
/// Microseconds of one start(), from a graph of `repeats`.
template <class Start>
float graph_microseconds(int repeats, const Start& start) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(g_stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < repeats; ++i) start();
  CHECK(cudaStreamEndCapture(g_stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> taken;
  for (int round = -2; round < 15; ++round) {
    CHECK(cudaEventRecord(begin, g_stream));
    CHECK(cudaGraphLaunch(exec, g_stream));
    CHECK(cudaEventRecord(end, g_stream));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (round >= 0) taken.push_back(ms * 1000.0f / static_cast<float>(repeats));
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

struct Error {
  double square = 0, all = 0, worst = 0;
  void add(double got, double exact, double of) {
    square += (got - exact) * (got - exact), all += exact * exact;
    const double e = std::fabs(got - exact) / of;
    if (!(e <= worst)) worst = e;
  }
  double rms() const { return std::sqrt(square / all); }
};

template <int kC, int kGroups>
void measure(const char* name, int dz_parts, float before_forward, float before_backward, float aim) {
  constexpr int c = kC, out = 4 * kC;
  const int gram_parts = c <= 128 ? 132 : 1, sum_parts = c <= 128 ? 132 : 264, sum_rows = c <= 128 ? 64 : 8;
  const i64 rows = i64{sum_parts} * sum_rows;
  const i64 square = i64{c} * c, wide = i64{out} * c;
  const int gradient_blocks = out / (c < 512 ? 8 : 16);
  Array<__half> x(rows * c), w(wide), high(square), low(square), stacked(square + wide);
  Array<float> gram(gram_parts * square), sums(i64{sum_parts} * c), gamma(out), beta(out), d(c), cov(square),
      column_scale(c), t(wide), var(out), r(out), k(out), b(out), p(wide), dz(i64{dz_parts} * out), dgamma(out),
      dbeta(out), dw(wide), s(out), widest(out), row_parts(i64{gradient_blocks} * c), scales(2),
      row((c / 16 + 1) * i64{c}), exact_m(square);
  fill(x.data, x.count, 1, Fill::shifted_relu);
  fill(w.data, w.count, 2, Fill::normal, std::sqrt(2.0f / static_cast<float>(c)));
  fill(gamma.data, out, 3, Fill::normal, 0.2f, 1.0f);
  fill(beta.data, out, 4, Fill::normal, 0.2f);
  fill(p.data, p.count, 5, Fill::normal, 0.01f * std::sqrt(static_cast<float>(rows)));
  fill(dz.data, dz.count, 6, Fill::normal, 0.01f * std::sqrt(static_cast<float>(rows) / static_cast<float>(dz_parts)));
  gram_parts_kernel<<<dim3(c, static_cast<unsigned>(gram_parts)), 128>>>(x.data, c, static_cast<int>(rows) / gram_parts,
                                                                         gram.data);
  sum_parts_kernel<<<static_cast<unsigned>(sum_parts), 128>>>(x.data, c, sum_rows, sums.data);
  CHECK(cudaDeviceSynchronize());
  Small m{gram_parts,
          sum_parts,
          dz_parts,
          gradient_blocks,
          static_cast<float>(rows),
          gram.data,
          sums.data,
          w.data,
          gamma.data,
          beta.data,
          d.data,
          cov.data,
          column_scale.data,
          high.data,
          low.data,
          t.data,
          var.data,
          r.data,
          k.data,
          b.data,
          p.data,
          dz.data,
          dgamma.data,
          dbeta.data,
          dw.data,
          s.data,
          widest.data,
          row_parts.data,
          stacked.data,
          scales.data,
          row.data,
          exact_m.data};
  const CUtensorMap w_map = tensor_map(w.data, {kC, 4 * kC}, {kC}, {64, 64}),
                    high_map = tensor_map(high.data, {kC, kC}, {kC}, {64, 64}),
                    low_map = tensor_map(low.data, {kC, kC}, {kC}, {64, 64});
  using Statistics = StatisticsTile<kC, kGroups>;
  using Product = ProductTile<kC>;
  CHECK(cudaFuncSetAttribute(statistics_kernel<kC, kGroups>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Statistics::kBytes + 1024));
  CHECK(cudaFuncSetAttribute(product_kernel<kC>, cudaFuncAttributeMaxDynamicSharedMemorySize, Product::kBytes));
  const auto one = [&](bool dependent) {
    launch(covariance_kernel<kC>, dim3(c < 128 ? c : 128), 256, 0, 8, dependent, g_stream, m);
  };
  const auto two = [&](bool dependent) {
    launch(statistics_kernel<kC, kGroups>, dim3(out / Statistics::kRows * (c / 64)), kGroups * 128 + 32,
           Statistics::kBytes + 1024, c / 64, dependent, g_stream, w_map, high_map, low_map, m);
  };
  const auto three = [&](bool dependent) {
    launch(gradients_kernel<kC>, dim3(static_cast<unsigned>(gradient_blocks)), 256, 0, 1, dependent, g_stream, m);
  };
  const auto four = [&](bool dependent) {
    launch(product_kernel<kC>, dim3(Product::kBlocks), 128, Product::kBytes, 4, dependent, g_stream, w_map, m);
  };
  u64 seen[3][6] = {};
  for (int run = 0; run < 3; ++run) {
    for (Array<float>* to :
         {&d, &cov, &t, &var, &r, &k, &b, &dgamma, &dbeta, &dw, &s, &row_parts, &scales, &row, &exact_m})
      to->poison();
    high.poison(), low.poison(), stacked.poison();
    CHECK(cudaDeviceSynchronize());
    one(run > 0), two(run > 0), three(run > 0), four(run > 0);
    CHECK(cudaStreamSynchronize(g_stream));
    u64* const q = seen[run];
    q[0] = checksum(t.data, t.count * 4), q[1] = checksum(dw.data, dw.count * 4),
    q[2] = checksum(stacked.data, stacked.count * 2);
    q[3] = checksum(row.data, row.count * 4), q[4] = checksum(b.data, b.count * 4), q[5] = checksum(scales.data, 8);
  }
  const bool same =
      std::memcmp(seen[0], seen[1], sizeof seen[0]) == 0 && std::memcmp(seen[0], seen[2], sizeof seen[0]) == 0;
  // float64 on the host
  const double n = static_cast<double>(rows);
  std::vector<double> mean(c), exact_c(square), exact_s(out), sum_m(square);
  {
    const auto g = gram.host(), a = sums.host();
    for (int q = 0; q < sum_parts; ++q)
      for (int i = 0; i < c; ++i) mean[i] += a[i64{q} * c + i] / n;
    for (int q = 0; q < gram_parts; ++q)
      for (i64 i = 0; i < square; ++i) exact_c[i] += g[q * square + i] / n;
    for (int i = 0; i < c; ++i)
      for (int j = 0; j < c; ++j) exact_c[i64{i} * c + j] -= mean[i] * mean[j];
  }
  const auto hw = w.host(), hs = stacked.host();
  const auto ht = t.host(), hv = var.host(), hk = k.host(), hb = b.host(), hp = p.host(), hz = dz.host(),
             hg = gamma.host(), he = beta.host(), hdg = dgamma.host(), hdb = dbeta.host(), hdw = dw.host(),
             hrow = row.host(), hm = exact_m.host(), hscales = scales.host();
  std::vector<double> fw(wide), exact_t(c), share(out);
  for (i64 i = 0; i < wide; ++i) fw[i] = static_cast<double>(__half2float(hw[i]));
  Error et, ev, eb, eg, ew, em, ek, er;
  for (int o = 0; o < out; ++o) {
    const double* const wo = &fw[i64{o} * c];
    std::fill(exact_t.begin(), exact_t.end(), 0.0);
    for (int i = 0; i < c; ++i)
      for (int j = 0; j < c; ++j) exact_t[j] += wo[i] * exact_c[i64{i} * c + j];
    double v = 0, mu = 0, z = 0, product = 0;
    for (int j = 0; j < c; ++j) v += wo[j] * exact_t[j], mu += wo[j] * mean[j];
    for (int q = 0; q < dz_parts; ++q) z += hz[i64{q} * out + o];
    const double root = 1 / std::sqrt(v + 1e-5), kk = hg[o] * root;
    for (int j = 0; j < c; ++j) product += wo[j] * (hp[i64{o} * c + j] - z * mean[j]);
    const double mm = root / n * product;
    exact_s[o] = kk * root * mm, share[o] = z / n;
    ev.add(hv[o], v, v), eb.add(hb[o], he[o] - mu * kk, 1), eg.add(hdg[o], n * mm, 1), eg.add(hdb[o], z, 1);
    for (int j = 0; j < c; ++j) {
      et.add(ht[i64{o} * c + j], exact_t[j], 1);
      ew.add(hdw[i64{o} * c + j], kk * (hp[i64{o} * c + j] - z * mean[j] - n * mm * root * exact_t[j]), 1);
      ek.add(static_cast<double>(__half2float(hs[square + i64{o} * c + j])) * hscales[1], kk * wo[j], 1);
    }
    for (int i = 0; i < c; ++i) {
      const double by = exact_s[o] * wo[i];
      for (int j = 0; j <= i; ++j) sum_m[i64{i} * c + j] += by * wo[j];
    }
  }
  double stored_m = 0, all_m = 0;
  for (int i = 0; i < c; ++i)
    for (int j = 0; j < c; ++j) {
      const double exact = i >= j ? sum_m[i64{i} * c + j] : sum_m[i64{j} * c + i];
      em.add(hm[i64{i} * c + j], exact, 1);
      const double stored = -static_cast<double>(__half2float(hs[i64{i} * c + j])) * hscales[0] * hscales[1];
      stored_m += (stored - exact) * (stored - exact), all_m += exact * exact;
    }
  for (int i = 0; i < c; ++i) {
    double exact = 0, of = 0, got = 0;
    for (int j = 0; j < c; ++j) {
      const double v = -mean[j] * static_cast<double>(__half2float(hs[i64{j} * c + i])) * hscales[0] * hscales[1];
      exact += v, of += std::fabs(v);
    }
    for (int o = 0; o < out; ++o) {
      const double v = -share[o] * static_cast<double>(__half2float(hs[square + i64{o} * c + i])) * hscales[1];
      exact += v, of += std::fabs(v);
    }
    for (int q = 0; q <= c / 16; ++q) got += hrow[i64{q} * c + i];
    er.add(got, exact, of);
  }
  const double half_m = std::sqrt(stored_m / all_m);
  const bool right = same && et.rms() < 4e-6 && ev.worst < 1e-5 && eb.worst < 1e-5 && eg.rms() < 1e-5 &&
                     ew.rms() < 1e-5 && em.rms() < 1e-5 && half_m < 4e-4 && ek.rms() < 4e-4 && er.worst < 1e-5;
  std::printf(
      "%s c %d: T3 %.1e, var %.1e (worst), b %.1e, dgamma %.1e, dW %.1e, M %.1e (as half %.1e), kW as half %.1e, row "
      "%.1e; "
      "3 runs %s (the first without dependent launch): %s\n",
      name, c, et.rms(), ev.worst, eb.worst, eg.rms(), ew.rms(), em.rms(), half_m, ek.rms(), er.worst,
      same ? "equal" : "DIFFER", right ? "right" : "WRONG");
  std::fflush(stdout);
  m.exact_m = nullptr;
  const float t1 = graph_microseconds(20, [&] { one(false); }), t2 = graph_microseconds(20, [&] { two(false); }),
              t3 = graph_microseconds(20, [&] { three(false); }), t4 = graph_microseconds(20, [&] { four(false); });
  const float forward = graph_microseconds(20, [&] { one(false), two(false); });
  const float backward = graph_microseconds(20, [&] { three(false), four(false); });
  const float forward_dependent = graph_microseconds(20, [&] { one(true), two(true); });
  const float backward_dependent = graph_microseconds(20, [&] { three(true), four(true); });
  const float best = std::min(forward, forward_dependent) + std::min(backward, backward_dependent);
  std::printf(
      "%s c %d: covariance %.1f, statistics %.1f, gradients %.1f, products %.1f us | forward %.1f, with dependent "
      "launch %.1f "
      "(library and small kernels %.1f) | backward %.1f, %.1f (%.1f) | %.1f us a block: %s (go at <= 4 x %.0f)\n\n",
      name, c, t1, t2, t3, t4, forward, forward_dependent, before_forward, backward, backward_dependent,
      before_backward, best, right && best <= 4 * aim ? "GO" : "NO GO", aim);
  std::fflush(stdout);
}

int main() {
  start_up();
  CHECK(cudaStreamCreateWithFlags(&g_stream, cudaStreamNonBlocking));
  measure<64, 1>("S1", 264, 19.4f, 22.7f, 3);
  measure<128, 1>("S2", 132, 17.8f, 24.7f, 4);
  measure<256, 1>("S3", 64, 23.7f, 34.9f, 5);
  measure<512, 2>("S4", 32, 44.9f, 76.0f, 8);
  return 0;
}
