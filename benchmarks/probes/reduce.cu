// Step E: dz2 = f'(z2)·([a | dz]·[-M ; k⊙W3] + row), Σdz2, Σdz2·(c2 - mean), with two left operands in one loop; beside
// today's GEMM and pass of sums. f = ReLU, z2 = c2·factor + shift.
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a reduce.cu -lcublasLt
#include "gemm.cuh"
#include "passes.cuh"
#include "tiles.cuh"

using namespace probe;

struct ReduceCut {
  i64 rows;
  int columns, narrow, depths;  ///< c; stages of a's c channels; of all 5c
  int tiles, column_blocks, stages;
  bool in_turn;
  const float* scales;  ///< the factor of a's products; the factor of all at the end
  const float *factor, *shift, *mean, *row;
  float* parts;  ///< (parts, 2, c)
};

// ---- epilogue SlopeSums ----

/// dz2 in the place of c2; sums becomes Σdz2 and Σdz2·(c2 - mean) of the thread's two rows: four values for columns
/// 8j + 2t and 8j + 2t + 1 (sum, product, sum, product).
template <int kColumns>
__device__ inline void slope_sums(float (&sums)[kColumns / 2], u32 tile, u32 vectors, float scale, i64 first_row,
                                  i64 rows) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
  const int here = warp * 16 + lane % 16;
  const i64 row = first_row + warp * 16 + lane / 4;
  const bool low = row < rows, high = row + 8 < rows;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const u32 at = tile + place(here, 16 * i + lane / 16 * 8);
    u32 x[4], y[4];
    load_matrices(x, at);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const u32 from = vectors + (16 * i + 8 * h + lane % 4 * 2) * 16;
      const float4 u = load_vector(from), v = load_vector(from + 16);  // factor, shift, mean, row
      const float2 c = unpack_pair(x[2 * h]), e = unpack_pair(x[2 * h + 1]);
      float* const s = sums + 8 * i + 4 * h;
      const bool on[4] = {low & (fmaf(c.x, u.x, u.y) > 0.0f), low & (fmaf(c.y, v.x, v.y) > 0.0f),
                          high & (fmaf(e.x, u.x, u.y) > 0.0f), high & (fmaf(e.y, v.x, v.y) > 0.0f)};
      const float g[4] = {fmaf(s[0], scale, u.w), fmaf(s[1], scale, v.w), fmaf(s[2], scale, u.w),
                          fmaf(s[3], scale, v.w)};
      y[2 * h] = pack_pair(on[0] ? g[0] : 0.0f, on[1] ? g[1] : 0.0f);
      y[2 * h + 1] = pack_pair(on[2] ? g[2] : 0.0f, on[3] ? g[3] : 0.0f);
      const float2 p = unpack_pair(y[2 * h]), q = unpack_pair(y[2 * h + 1]);
      s[0] = p.x + q.x;
      s[1] = fmaf(p.x, c.x - u.z, q.x * (e.x - u.z));
      s[2] = p.y + q.y;
      s[3] = fmaf(p.y, c.y - v.z, q.y * (e.y - v.z));
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
/// total += the warp's sums: lane 4g + t has columns 8j + 2t, + 1 of j in [g·kColumns/64, ...).
template <int kColumns>
__device__ inline void add_sums(float (&sums)[kColumns / 2], float (&total)[kColumns / 16]) {
  halve<kColumns / 2, 16>(sums);
  halve<kColumns / 4, 8>(sums);
  halve<kColumns / 8, 4>(sums);
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) total[i] += sums[i];
}
/// The sums of a warpgroup's four warps, in order, to memory. scratch: 4 x 2 x kColumns floats.
template <int kColumns>
__device__ inline void store_sums(const float (&total)[kColumns / 16], float* scratch, float* to, int columns,
                                  int group) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const int column = (lane / 4 * (kColumns / 64) + i / 4) * 8 + lane % 4 * 2 + i / 2 % 2;
    scratch[(warp * 2 + i % 2) * kColumns + column] = total[i];
  }
  group_barrier(1 + group, 128);
  for (int i = thread; i < 2 * kColumns; i += 128) {
    float sum = 0;
    for (int w = 0; w < 4; ++w) sum += scratch[w * 2 * kColumns + i];
    to[i64{i / kColumns} * columns + i % kColumns] = sum;
  }
}
/// A warpgroup without tiles.
template <int kColumns>
__device__ inline void store_nothing(float* to, int columns) {
  for (int i = static_cast<int>(threadIdx.x) % 128; i < 2 * kColumns; i += 128)
    to[i64{i / kColumns} * columns + i % kColumns] = 0;
}
template <int kColumns>
__device__ inline void set_vectors(char* at, const ReduceCut& cut, int first_column) {
  auto* const to = reinterpret_cast<float4*>(at);
  for (int c = static_cast<int>(threadIdx.x); c < kColumns; c += 384) {
    const int o = first_column + c;
    to[c] = {cut.factor[o], cut.shift[o], cut.mean[o], cut.row[o]};
  }
}

/// One stage's products: 64 channels.
template <int kColumns>
__device__ inline void multiply_stage(float (&sums)[kColumns / 2], u32 a, u32 b, bool keep) {
  const u64 left = operand_at(a), right = columns_at(b);
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    WarpgroupMma<kColumns, 0, 1>::run(sums, left + k * kNextSixteen, right + k * kNextSixteenRows, keep || k > 0);
  commit_products();
}

// ---- c <= 128: all 5c x c weights stay; a warpgroup has tiles of 64 rows, alternating ----

template <int kColumns, int kBuffers>
struct Resident {
  static constexpr int kStageBytes = 8192, kWeightBytes = kColumns * 128, kTileBytes = kColumns * 128;
  static constexpr int kMostStages = 20, kVectorBytes = kColumns * 16, kBarriers = 3 + 2 * kMostStages + 4 * kBuffers;
  static constexpr int bytes(int depths, int stages) {
    return depths * kWeightBytes + 2 * kBuffers * kTileBytes + stages * kStageBytes + kVectorBytes + kBarriers * 8;
  }
  u32 weights, tiles, x, vectors, barriers;
  __device__ Resident(u32 base, const ReduceCut& cut)
      : weights(base),
        tiles(weights + cut.depths * kWeightBytes),
        x(tiles + 2 * kBuffers * kTileBytes),
        vectors(x + cut.stages * kStageBytes),
        barriers(vectors + kVectorBytes) {}
  __device__ SharedBarrier weights_there() const { return {barriers}; }
  __device__ SharedBarrier turn_of(int group) const { return {barriers + 8 * (1 + group)}; }
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * (3 + stage)}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (3 + kMostStages + stage)}; }
  __device__ SharedBarrier came(int group, int buffer) const {
    return {barriers + 8 * (3 + 2 * kMostStages + group * kBuffers + buffer)};
  }
  __device__ SharedBarrier ready(int group, int buffer) const {
    return {barriers + 8 * (3 + 2 * kMostStages + (2 + group) * kBuffers + buffer)};
  }
  __device__ u32 tile(int group, int buffer) const { return tiles + (group * kBuffers + buffer) * kTileBytes; }
  __device__ void set_up(int stages) const {
    weights_there().init(1);
    for (int g = 0; g < 2; ++g) {
      turn_of(g).init(4);
      for (int b = 0; b < kBuffers; ++b) came(g, b).init(1), ready(g, b).init(4);
    }
    for (int i = 0; i < stages; ++i) full(i).init(1), empty(i).init(4);
    publish_barriers();
  }
};

template <int kColumns, int kBuffers>
__global__ void __launch_bounds__(384, 1)
    resident_kernel(const __grid_constant__ CUtensorMap narrow, const __grid_constant__ CUtensorMap wide,
                    const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap c2,
                    const __grid_constant__ CUtensorMap dz2, const ReduceCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = Resident<kColumns, kBuffers>;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();
  const Tile shared(shared_address(memory), cut);
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) shared.set_up(cut.stages);
  set_vectors<kColumns>(memory + (shared.vectors - shared.weights), cut, 0);
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<40>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp == 3) return;
    if (warp == 0) {
      shared.weights_there().arrive_expecting(cut.depths * Tile::kWeightBytes);
      for (int d = 0; d < cut.depths; ++d)
        for (int c = 0; c < kColumns; c += 64)
          load_box(shared.weights + d * Tile::kWeightBytes + c / 64 * 8192, w, c, d * 64, shared.weights_there());
      RingPlace to;
      for (int tile = first; tile < cut.tiles; tile += step)
        for (int d = 0; d < cut.depths; ++d, to.next(1, cut.stages)) {
          shared.empty(to.stage).wait(to.parity ^ 1, 3);
          shared.full(to.stage).arrive_expecting(Tile::kStageBytes);
          if (d < cut.narrow)
            load_box(shared.x + to.stage * Tile::kStageBytes, narrow, d * 64, tile * 64, shared.full(to.stage));
          else
            load_box(shared.x + to.stage * Tile::kStageBytes, wide, (d - cut.narrow) * 64, tile * 64,
                     shared.full(to.stage));
        }
      return;
    }
    const int of = warp - 1, part = first + of * step, parts = 2 * step;
    const auto bring = [&](int tile, int buffer) {
      shared.came(of, buffer).arrive_expecting(Tile::kTileBytes);
      for (int c = 0; c < kColumns; c += 64)
        load_box(shared.tile(of, buffer) + c / 64 * 8192, c2, c, tile * 64, shared.came(of, buffer));
    };
    for (int b = 0; b < kBuffers; ++b)
      if (part + b * parts < cut.tiles) bring(part + b * parts, b);
    RingPlace at;
    for (int tile = part; tile < cut.tiles; tile += parts, at.next(1, kBuffers)) {
      shared.ready(of, at.stage).wait(at.parity, 4);
      for (int c = 0; c < kColumns; c += 64) store_box(dz2, c, tile * 64, shared.tile(of, at.stage) + c / 64 * 8192);
      commit_stores();
      wait_for_stores_to_read();
      if (tile + kBuffers * parts < cut.tiles)
        bring(tile + kBuffers * parts, at.stage);
      else if (tile + parts >= cut.tiles)
        shared.came(of, at.stage).arrive();  // the last: its buffer is free
    }
    return;
  }
  take_registers<232>();
  constexpr int kNarrow = kColumns / 64, kDepths = 5 * kNarrow;
  RingPlace from, at;
  from.next(group * kDepths, cut.stages);
  Turns turns{group};
  const float narrow_scale = cut.scales[0], scale = cut.scales[1];
  const bool releases = threadIdx.x % 32 == 0;
  float total[kColumns / 16] = {};
  float* const part = cut.parts + i64{first * 2 + group} * 2 * cut.columns;
  if (first + group * step >= cut.tiles) store_nothing<kColumns>(part, cut.columns);
  shared.weights_there().wait(0, 5);
  for (int tile = first + group * step; tile < cut.tiles; tile += 2 * step, at.next(1, kBuffers)) {
    float sums[kColumns / 2];
    if (cut.in_turn) {
      shared.turn_of(group).wait(turns.parity, 1);
      turns.parity ^= 1;
    }
    int before = 0;
#pragma unroll
    for (int d = 0; d < kNarrow; ++d, from.next(1, cut.stages)) {
      shared.full(from.stage).wait(from.parity, 2);
      multiply_stage<kColumns>(sums, shared.x + from.stage * Tile::kStageBytes, shared.weights + d * Tile::kWeightBytes,
                               d > 0);
      if (d > 0) {
        wait_for_products<1>();
        if (releases) shared.empty(before).arrive();
      }
      before = from.stage;
    }
    wait_for_products<0>();
    products_done(sums);
    if (releases) shared.empty(before).arrive();
#pragma unroll
    for (float& s : sums) s *= narrow_scale;
#pragma unroll
    for (int d = kNarrow; d < kDepths; ++d, from.next(1, cut.stages)) {
      shared.full(from.stage).wait(from.parity, 2);
      multiply_stage<kColumns>(sums, shared.x + from.stage * Tile::kStageBytes, shared.weights + d * Tile::kWeightBytes,
                               true);
      if (d > kNarrow) {
        wait_for_products<1>();
        if (releases) shared.empty(before).arrive();
      }
      before = from.stage;
    }
    if (releases && cut.in_turn) shared.turn_of(group ^ 1).arrive();
    wait_for_products<0>();
    products_done(sums);
    if (releases) shared.empty(before).arrive();
    from.next(kDepths, cut.stages);
    shared.came(group, at.stage).wait(at.parity, 6);
    slope_sums<kColumns>(sums, shared.tile(group, at.stage), shared.vectors, scale, i64{tile} * 64, cut.rows);
    publish_to_copies();
    __syncwarp();
    if (releases) shared.ready(group, at.stage).arrive();
    add_sums<kColumns>(sums, total);
    if (tile + 2 * step >= cut.tiles) {  // here: with code behind the loop ptxas gives it 168 registers, and spills
      shared.came(group, at.stage).wait(at.parity ^ 1, 8);
      store_sums<kColumns>(total, reinterpret_cast<float*>(memory + (shared.tile(group, at.stage) - shared.weights)),
                           part, cut.columns, group);
    }
  }
#else
  __trap();
#endif
}

// ---- c >= 256: tiles of 128 rows x 256 columns, weights come with the rows; kCluster blocks share their copies ----

template <int kCluster>
struct Streamed {
  static constexpr int kColumns = 256, kLeftBytes = 128 * 128, kRightBytes = kColumns * 128;
  static constexpr int kStageBytes = kLeftBytes + kRightBytes, kStages = 3, kTileBytes = 64 * kColumns * 2;
  static constexpr int kVectorBytes = kColumns * 16, kBarriers = 2 * kStages + 4;
  static constexpr int kBytes = kStages * kStageBytes + 2 * kTileBytes + kVectorBytes + kBarriers * 8;
  u32 x, tiles, vectors, barriers;
  __device__ explicit Streamed(u32 base)
      : x(base), tiles(x + kStages * kStageBytes), vectors(tiles + 2 * kTileBytes), barriers(vectors + kVectorBytes) {}
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * stage}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (kStages + stage)}; }
  __device__ SharedBarrier came(int group) const { return {barriers + 8 * (2 * kStages + group)}; }
  __device__ SharedBarrier ready(int group) const { return {barriers + 8 * (2 * kStages + 2 + group)}; }
  __device__ u32 tile(int group) const { return tiles + group * kTileBytes; }
  __device__ void set_up() const {
    for (int g = 0; g < 2; ++g) came(g).init(1), ready(g).init(4);
    for (int i = 0; i < kStages; ++i) full(i).init(1), empty(i).init(8 * kCluster);
    publish_barriers();
  }
  /// A warp has read a stage: every block that writes into it is told.
  __device__ void release(int stage) const {
    if (threadIdx.x % 32 != 0) return;
    if constexpr (kCluster == 1)
      empty(stage).arrive();
    else
      for (u32 r = 0; r < kCluster; ++r) arrive_at(empty(stage), r);
  }
};

template <int kCluster>
__global__ void __launch_bounds__(384, 1)
    streamed_kernel(const __grid_constant__ CUtensorMap narrow, const __grid_constant__ CUtensorMap wide,
                    const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap c2,
                    const __grid_constant__ CUtensorMap dz2, const ReduceCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = Streamed<kCluster>;
  constexpr int kColumns = Tile::kColumns;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();
  const Tile shared(shared_address(memory));
  const int cluster = static_cast<int>(blockIdx.x) / kCluster, rank = static_cast<int>(blockIdx.x) % kCluster;
  const int first_column = cluster % cut.column_blocks * kColumns, first = cluster / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / kCluster / cut.column_blocks;
  const int rounds =
      (cut.tiles + kCluster - 1) / kCluster;  // tiles of a cluster, the last of them beyond the rows perhaps
  if (threadIdx.x == 0) shared.set_up();
  set_vectors<kColumns>(memory + (shared.vectors - shared.x), cut, first_column);
  __syncthreads();
  if constexpr (kCluster > 1) cluster_sync();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<40>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp == 3) return;
    if (warp == 0) {
      RingPlace to;
      for (int round = first; round < rounds; round += step)
        for (int d = 0; d < cut.depths; ++d, to.next(1, Tile::kStages)) {
          const int row = (round * kCluster + rank) * 128;
          const u32 left = shared.x + to.stage * Tile::kStageBytes, right = left + Tile::kLeftBytes;
          shared.empty(to.stage).wait(to.parity ^ 1, 3);
          const SharedBarrier full = shared.full(to.stage);
          full.arrive_expecting(Tile::kStageBytes);
          if (d < cut.narrow)
            load_box(left, narrow, d * 64, row, full);
          else
            load_box(left, wide, (d - cut.narrow) * 64, row, full);
          for (int c = rank * (kColumns / kCluster); c < (rank + 1) * (kColumns / kCluster); c += 64)
            if constexpr (kCluster == 1)
              load_box(right + c / 64 * 8192, w, first_column + c, d * 64, full);
            else
              load_box_to_all(right + c / 64 * 8192, w, first_column + c, d * 64, full, (1 << kCluster) - 1);
        }
      return;
    }
    const int of = warp - 1;
    u32 parity = 0;
    for (int round = first; round < rounds; round += step, parity ^= 1) {
      const int row = (round * kCluster + rank) * 128 + of * 64;
      shared.came(of).arrive_expecting(Tile::kTileBytes);
      for (int c = 0; c < kColumns; c += 64)
        load_box(shared.tile(of) + c / 64 * 8192, c2, first_column + c, row, shared.came(of));
      shared.ready(of).wait(parity, 4);
      for (int c = 0; c < kColumns; c += 64) store_box(dz2, first_column + c, row, shared.tile(of) + c / 64 * 8192);
      commit_stores();
      wait_for_stores_to_read();
      if (round + step >= rounds) shared.came(of).arrive();  // the last: its buffer is free
    }
    return;
  }
  take_registers<232>();
  RingPlace from;
  u32 parity = 0;
  const float narrow_scale = cut.scales[0], scale = cut.scales[1];
  float total[kColumns / 16] = {};
  float* const part = cut.parts + i64{(first * kCluster + rank) * 2 + group} * 2 * cut.columns + first_column;
  for (int round = first; round < rounds; round += step, parity ^= 1) {
    float sums[kColumns / 2];
    int before = from.stage;
    shared.full(before).wait(from.parity, 2);
    multiply_stage<kColumns>(sums, shared.x + before * Tile::kStageBytes + group * 8192,
                             shared.x + before * Tile::kStageBytes + Tile::kLeftBytes, false);
    from.next(1, Tile::kStages);
    for (int d = 1; d < cut.narrow; ++d, from.next(1, Tile::kStages)) {
      const u32 stage = shared.x + from.stage * Tile::kStageBytes;
      shared.full(from.stage).wait(from.parity, 2);
      multiply_stage<kColumns>(sums, stage + group * 8192, stage + Tile::kLeftBytes, true);
      wait_for_products<1>();
      shared.release(before);
      before = from.stage;
    }
    wait_for_products<0>();
    products_done(sums);
    shared.release(before);
#pragma unroll
    for (float& s : sums) s *= narrow_scale;
    for (int d = cut.narrow; d < cut.depths; ++d, from.next(1, Tile::kStages)) {
      const u32 stage = shared.x + from.stage * Tile::kStageBytes;
      shared.full(from.stage).wait(from.parity, 2);
      multiply_stage<kColumns>(sums, stage + group * 8192, stage + Tile::kLeftBytes, true);
      if (d > cut.narrow) {
        wait_for_products<1>();
        shared.release(before);
      }
      before = from.stage;
    }
    wait_for_products<0>();
    products_done(sums);
    shared.release(before);
    shared.came(group).wait(parity, 6);
    slope_sums<kColumns>(sums, shared.tile(group), shared.vectors, scale,
                         i64{round * kCluster + rank} * 128 + group * 64, cut.rows);
    publish_to_copies();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.ready(group).arrive();
    add_sums<kColumns>(sums, total);
    if (round + step >= rounds) {
      shared.came(group).wait(parity ^ 1, 8);
      store_sums<kColumns>(total, reinterpret_cast<float*>(memory + (shared.tile(group) - shared.x)), part, cut.columns,
                           group);
      if constexpr (kCluster > 1) cluster_sync_unaligned();  // no block ends while another still tells it of a stage
    }
  }
#else
  __trap();
#endif
}

// ---- the rest ----

/// Today's sums of norm 2: Σf'·da, Σf'·da·(c2 - mean).
struct SlopePass {
  static constexpr int kSums = 2;
  const __half *da, *c2;
  const float *factor, *shift, *mean;
  struct Kept {
    float k[8], b[8], m[8];
  };
  struct Loaded {
    Eight da, c2;
  };
  __device__ Kept keep(int c) const {
    Kept kept;
    for (int n = 0; n < 8; ++n) kept.k[n] = factor[c + n], kept.b[n] = shift[c + n], kept.m[n] = mean[c + n];
    return kept;
  }
  __device__ Loaded load(i64 at) const { return {Eight::load(da + at), Eight::load(c2 + at)}; }
  template <int S>
  __device__ void use(const Kept& k, const Loaded& l, i64, float (&sums)[S][8]) const {
    float g[8], v[8];
    l.da.unpack(g), l.c2.unpack(v);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      g[n] = fmaf(v[n], k.k[n], k.b[n]) > 0.0f ? g[n] : 0.0f;
      sums[0][n] += g[n];
      sums[1][n] = fmaf(g[n], v[n] - k.m[n], sums[1][n]);
    }
  }
};

/// Sampled rows in float64.
__global__ void reference_kernel(const __half* a, const __half* dz, const __half* w, const __half* c2,
                                 const float* scales, const float* factor, const float* shift, const float* row,
                                 const i64* rows, int c, double* to) {
  const i64 r = rows[blockIdx.x];
  for (int o = static_cast<int>(threadIdx.x); o < c; o += static_cast<int>(blockDim.x)) {
    double left = 0, right = 0;
    for (int i = 0; i < c; ++i)
      left += static_cast<double>(__half2float(a[r * c + i])) * static_cast<double>(__half2float(w[i64{i} * c + o]));
    for (int i = 0; i < 4 * c; ++i)
      right += static_cast<double>(__half2float(dz[r * 4 * c + i])) *
               static_cast<double>(__half2float(w[i64{c + i} * c + o]));
    const double v =
        (left * static_cast<double>(scales[0]) + right) * static_cast<double>(scales[1]) + static_cast<double>(row[o]);
    to[i64{blockIdx.x} * c + o] = fmaf(__half2float(c2[r * c + o]), factor[o], shift[o]) > 0.0f ? v : 0.0;
  }
}

struct Shape {
  const char* name;
  i64 rows;
  int c;
  float today, model, go;
};
constexpr int kSets = 8, kRounds = 20;

struct Set {
  Array<__half> a, dz, c2, to;
  Set(const Shape& s, u32 seed) : a(s.rows * s.c), dz(s.rows * s.c * 4), c2(s.rows * s.c), to(s.rows * s.c) {
    fill(a.data, a.count, seed, Fill::shifted_relu);
    fill(dz.data, dz.count, seed + 1, Fill::normal, 0.3f, 0.005f);
    fill(c2.data, c2.count, seed + 2, Fill::normal, 1.0f, 0.1f);
    to.poison();
  }
};

struct Problem {
  Shape s;
  std::vector<Set> sets;
  Array<__half> w, da;
  Array<float> factor, shift, mean, row, scales, parts, sums;
  Array<i64> rows_picked;
  std::vector<double> reference;
  float chain_us = 0, best = 1e9f;

  explicit Problem(const Shape& shape)
      : s(shape),
        w(5ll * shape.c * shape.c),
        da(shape.rows * shape.c),
        factor(shape.c),
        shift(shape.c),
        mean(shape.c),
        row(shape.c),
        scales(2),
        parts(512ll * 2 * shape.c),
        sums(2 * shape.c),
        rows_picked(4096) {
    for (int i = 0; i < kSets; ++i) sets.emplace_back(s, 17u * static_cast<u32>(i) + 5u);
    const i64 square = i64{s.c} * s.c;
    fill(w.data, square, 98, Fill::normal, 1.0f);
    fill(w.data + square, 4 * square, 99, Fill::normal, std::sqrt(0.5f / static_cast<float>(s.c)));
    fill(factor.data, s.c, 7, Fill::normal, 0.2f, 1.0f);
    fill(shift.data, s.c, 8, Fill::normal, 0.3f);
    fill(mean.data, s.c, 9, Fill::normal, 0.1f);
    fill(row.data, s.c, 10, Fill::normal, 0.05f);
    scales.put({1.0f / 64, 2.0f});
    rows_picked.put(sampled_rows(s.rows));
    Array<double> exact(4096ll * s.c);
    reference_kernel<<<4096, 128>>>(sets[0].a.data, sets[0].dz.data, w.data, sets[0].c2.data, scales.data, factor.data,
                                    shift.data, row.data, rows_picked.data, s.c, exact.data);
    CHECK(cudaGetLastError());
    reference = exact.host();
  }
  template <class Run>
  void judge(const char* name, int blocks, int stages, int bytes, bool turns, int parts_made, const Run& run) {
    const auto merged = [&](int i) {
      run(i);
      merge_parts(parts.data, parts_made, 2 * s.c, sums.data);
    };
    u64 seen[3][2] = {};
    for (auto& q : seen) {
      sets[0].to.poison(), parts.poison(), sums.poison();
      merged(0);
      CHECK(cudaGetLastError());
      CHECK(cudaDeviceSynchronize());
      q[0] = checksum(sets[0].to.data, sets[0].to.count * 2);
      q[1] = checksum(sums.data, sums.count * 4);
    }
    const bool same =
        std::memcmp(seen[0], seen[1], sizeof seen[0]) == 0 && std::memcmp(seen[0], seen[2], sizeof seen[0]) == 0;
    Array<__half> got(4096ll * s.c);
    gather_rows_kernel<<<4096, 128>>>(sets[0].to.data, rows_picked.data, s.c, got.data);
    CHECK(cudaGetLastError());
    const Difference d = difference_of(got.host(), reference);
    const double off = sums_error(sets[0].to.data, sets[0].c2.data, mean.data, s.rows, s.c, 2, sums.host());
    const bool right = same && d.nans == 0 && d.error < 4e-4 && d.worst < 2e-3 && off < 2e-6;
    const float us = microseconds(kSets, kRounds, run), with = microseconds(kSets, kRounds, merged);
    if (right) best = std::min(best, us);
    std::printf(
        "%s %s %d blocks %d stages %3d KiB%s | %7.1f us (%.1f with the parts added)  %.2f TB/s  %.0f TFLOP/s | chain "
        "%.1f "
        "| error %.2e worst %.1e NaN %lld, sums %.1e (%d parts), 3 runs %s | %s\n",
        s.name, name, blocks, stages, bytes >> 10, turns ? " turns" : "", us, with,
        static_cast<double>(s.rows) * 14.0 * s.c / us * 1e-6, 2e-6 * static_cast<double>(s.rows) * 5 * s.c * s.c / us,
        chain_us, d.error, d.worst, static_cast<long long>(d.nans), off, parts_made, same ? "equal" : "DIFFER",
        right ? "right" : "WRONG");
    std::fflush(stdout);
  }
};

struct Maps {
  std::vector<CUtensorMap> a, dz, c2, to;
  CUtensorMap w{};
  Maps(const Problem& p, u32 left_rows) {
    const auto c = static_cast<u64>(p.s.c), rows = static_cast<u64>(p.s.rows);
    w = tensor_map(p.w.data, {c, 5 * c}, {c}, {64, 64});
    for (const Set& s : p.sets) {
      a.push_back(tensor_map(s.a.data, {c, rows}, {c}, {64, left_rows}));
      dz.push_back(tensor_map(s.dz.data, {4 * c, rows}, {4 * c}, {64, left_rows}));
      c2.push_back(tensor_map(s.c2.data, {c, rows}, {c}, {64, 64}));
      to.push_back(tensor_map(s.to.data, {c, rows}, {c}, {64, 64}));
    }
  }
};
ReduceCut cut_of(const Problem& p) {
  ReduceCut cut{};
  cut.rows = p.s.rows, cut.columns = p.s.c, cut.narrow = p.s.c / 64, cut.depths = 5 * p.s.c / 64;
  cut.scales = p.scales.data, cut.factor = p.factor.data, cut.shift = p.shift.data, cut.mean = p.mean.data;
  cut.row = p.row.data, cut.parts = p.parts.data;
  return cut;
}

template <int kColumns, int kBuffers>
void measure_resident(Problem& p, int multiprocessors, bool turns, int most_stages) {
  using Tile = Resident<kColumns, kBuffers>;
  const Maps maps(p, 64);
  ReduceCut cut = cut_of(p);
  cut.tiles = static_cast<int>((p.s.rows + 63) / 64), cut.column_blocks = 1;
  const int round = 2 * cut.depths;
  const int room =
      std::min({((227 << 10) - Tile::bytes(cut.depths, 0)) / Tile::kStageBytes, Tile::kMostStages, most_stages});
  REQUIRE(room >= 2);
  cut.stages = room < round ? room : room - room % round;
  cut.in_turn = turns || cut.stages % round != 0;
  const int bytes = Tile::bytes(cut.depths, cut.stages),
            blocks = std::max(1, std::min(multiprocessors, (cut.tiles + 1) / 2));
  CHECK(cudaFuncSetAttribute(resident_kernel<kColumns, kBuffers>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  char name[48];
  std::snprintf(name, sizeof name, "resident<%d,%d>", kColumns, kBuffers);
  p.judge(name, blocks, cut.stages, bytes, cut.in_turn, 2 * blocks, [&](int i) {
    resident_kernel<kColumns, kBuffers>
        <<<blocks, 384, bytes>>>(maps.a[i], maps.dz[i], maps.w, maps.c2[i], maps.to[i], cut);
  });
}

template <int kCluster>
void measure_streamed(Problem& p, int multiprocessors) {
  using Tile = Streamed<kCluster>;
  const Maps maps(p, 128);
  ReduceCut cut = cut_of(p);
  cut.tiles = static_cast<int>((p.s.rows + 127) / 128), cut.column_blocks = p.s.c / 256;
  const int rounds = (cut.tiles + kCluster - 1) / kCluster;
  const int clusters = std::min(multiprocessors / kCluster / cut.column_blocks, rounds) * cut.column_blocks;
  const int blocks = clusters * kCluster;
  CHECK(cudaFuncSetAttribute(streamed_kernel<kCluster>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kBytes));
  char name[48];
  std::snprintf(name, sizeof name, "streamed<128x256, %d of a cluster>", kCluster);
  p.judge(name, blocks, Tile::kStages, Tile::kBytes, false, 2 * blocks / cut.column_blocks, [&](int i) {
    launch(streamed_kernel<kCluster>, dim3(static_cast<unsigned>(blocks)), 384, Tile::kBytes, kCluster, false, nullptr,
           maps.a[i], maps.dz[i], maps.w, maps.c2[i], maps.to[i], cut);
  });
}

void measure(const Shape& s, int multiprocessors, bool clusters) {
  Problem p(s);
  if (!clusters) {
    Gemm product{.m = s.rows, .n = s.c, .k = 4 * s.c};
    product.describe();
    const __half* const weights = p.w.data + i64{s.c} * s.c;
    REQUIRE(product.choose(p.sets[0].dz.data, weights, p.da.data, p.da.data));
    const auto gemm = [&](int i) { product.run(p.sets[i].dz.data, weights, p.da.data, p.da.data); };
    const float gemm_us = microseconds(kSets, kRounds, gemm);
    p.chain_us = microseconds(kSets, kRounds, [&](int i) {
      gemm(i);
      rows_kernel<<<multiprocessors * 2, 256>>>(
          SlopePass{p.da.data, p.sets[i].c2.data, p.factor.data, p.shift.data, p.mean.data}, s.rows, s.c, p.parts.data);
      merge_parts(p.parts.data, multiprocessors * 2, 2 * s.c, p.sums.data);
    });
    std::printf("%s today: GEMM of 4c %.1f + pass of sums %.1f = %.1f us (ledger %.0f) | %s\n", s.name, gemm_us,
                p.chain_us - gemm_us, p.chain_us, s.today, product.says().c_str());
    std::fflush(stdout);
  }
  if (clusters)
    measure_streamed<2>(p, multiprocessors);
  else if (s.c == 64) {
    measure_resident<64, 2>(p, multiprocessors, false, 20);
    measure_resident<64, 2>(p, multiprocessors, true, 20);
    measure_resident<64, 1>(p, multiprocessors, false, 20);
  } else if (s.c == 128) {
    measure_resident<128, 1>(p, multiprocessors, true, 20);
  } else {
    measure_streamed<1>(p, multiprocessors);
  }
  if (s.go > 0)
    std::printf("%s E%s: best %.1f us beside %.1f: %s (go at <= %.0f, model %.0f)\n", s.name,
                clusters ? " with clusters" : "", p.best, p.chain_us, p.best <= s.go ? "GO" : "NO GO", s.go, s.model);
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  const int multiprocessors = start_up();
  const Shape shapes[] = {{"S1", 802816, 64, 269, 192, 225},
                          {"S2", 200704, 128, 144, 104, 125},
                          {"S3", 50176, 256, 94, 73, 85},
                          {"S4", 12544, 512, 79, 69, 75}};
  // shapes with an unfinished tile, for correctness alone
  measure({"odd64", 64 * 37 + 19, 64, 0, 0, 0}, multiprocessors, false);
  measure({"odd128", 64 * 600 + 33, 128, 0, 0, 0}, multiprocessors, false);
  measure({"odd512", 128 * 71 + 67, 512, 0, 0, 0}, multiprocessors, false);
  for (const Shape& s : shapes)
    if (argc < 2 || std::strstr(argv[1], s.name) != nullptr) measure(s, multiprocessors, false);
  // a barrier that never comes ends the program: last
  measure({"odd512", 128 * 70 + 67, 512, 0, 0, 0}, multiprocessors, true);
  for (const Shape& s : {shapes[2], shapes[3]})
    if (argc < 2 || std::strstr(argv[1], s.name) != nullptr) measure(s, multiprocessors, true);
  return 0;
}
