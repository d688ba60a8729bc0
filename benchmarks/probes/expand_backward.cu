// Step D: dz = mask·(dc1·W1 + addend) and Σdz per column, in one wgmma kernel; beside today's GEMM and pass.
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a expand_backward.cu -lcublasLt
#include "gemm.cuh"
#include "passes.cuh"
#include "tiles.cuh"

using namespace probe;

// ---- the kernel: expand_forward.cu's, with W1 as stored (k, n) and the epilogue MaskedSum ----

struct BackCut {
  i64 rows;
  int out, depths, tiles, column_blocks, stages;
  bool in_turn;
  const std::uint8_t* mask;  ///< bits, as masked_activation.h: bit n % 8 of byte n / 8
  float* parts;              ///< Σdz: (parts, out)
};

/// A block's shared memory: weights, tiles that hold the addend before and dz after, stages of dc1, barriers.
template <int kColumns, int kBuffers>
struct BackTile {
  static constexpr int kRows = 64, kDepth = 64, kTaken = 232, kKept = 40, kThreads = 384;
  static constexpr int kStageBytes = kRows * 128, kWeightBytes = kColumns * 128,
                       kTileBytes = kColumns / 64 * kRows * 128;
  static constexpr int kMostStages = 16, kBarriers = 3 + 2 * kMostStages + 6 * kBuffers;
  /// Parts of a warpgroup: its threads have two columns each, so that 128 columns leave two halves of the rows.
  static constexpr int kParts = 256 / kColumns;
  static constexpr int bytes(int depths, int stages) {
    return depths * kWeightBytes + 2 * kBuffers * kTileBytes + stages * kStageBytes + kBarriers * 8;
  }
};

template <int kColumns, int kBuffers>
struct BackShared {
  using Tile = BackTile<kColumns, kBuffers>;
  u32 weights, tiles, x, barriers;
  __device__ BackShared(u32 base, const BackCut& cut)
      : weights(base),
        tiles(weights + cut.depths * Tile::kWeightBytes),
        x(tiles + 2 * kBuffers * Tile::kTileBytes),
        barriers(x + cut.stages * Tile::kStageBytes) {}
  __device__ SharedBarrier weights_there() const { return {barriers}; }
  __device__ SharedBarrier turn_of(int group) const { return {barriers + 8 * (1 + group)}; }
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * (3 + stage)}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (3 + Tile::kMostStages + stage)}; }
  __device__ SharedBarrier of(int kind, int group, int buffer) const {
    return {barriers + 8 * (3 + 2 * Tile::kMostStages + (kind * 2 + group) * kBuffers + buffer)};
  }
  __device__ SharedBarrier came(int group, int buffer) const { return of(0, group, buffer); }    ///< the addend's tile
  __device__ SharedBarrier ready(int group, int buffer) const { return of(1, group, buffer); }   ///< dz in its place
  __device__ SharedBarrier summed(int group, int buffer) const { return of(2, group, buffer); }  ///< and read again
  __device__ u32 tile(int group, int buffer) const { return tiles + (group * kBuffers + buffer) * Tile::kTileBytes; }
  __device__ void set_up(int stages) const {
    weights_there().init(1);
    for (int g = 0; g < 2; ++g) {
      turn_of(g).init(4);
      for (int b = 0; b < kBuffers; ++b) came(g, b).init(1), ready(g, b).init(1), summed(g, b).init(4);
    }
    for (int i = 0; i < stages; ++i) full(i).init(1), empty(i).init(4);
    publish_barriers();
  }
};

/// The mask's bits of a thread's two rows (g and g + 8), shifted so that column 8j + 2t is at bit 8·(j % 4) of word j
/// / 4.
template <int kColumns>
struct MaskRows {
  u32 words[2][kColumns / 32];
  __device__ void load(const BackCut& cut, i64 first_row, int first_column) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const i64 row = first_row + warp * 16 + lane / 4 + 8 * upper;
      const std::uint8_t* const from = cut.mask + row * (cut.out / 8) + first_column / 8;
#pragma unroll
      for (int i = 0; i < kColumns / 128; ++i) {
        uint4 four = {0, 0, 0, 0};
        if (row < cut.rows) four = load_fixed(from + 16 * i);
        words[upper][4 * i] = four.x, words[upper][4 * i + 1] = four.y;
        words[upper][4 * i + 2] = four.z, words[upper][4 * i + 3] = four.w;
      }
    }
  }
  __device__ void shift() {
    const int by = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
#pragma unroll
      for (int i = 0; i < kColumns / 32; ++i) words[upper][i] >>= by;
  }
};

/// dz = mask·(acc + addend) in the place of the addend.
template <int kColumns>
__device__ inline void masked_sum(const float (&sums)[kColumns / 2], const MaskRows<kColumns>& mask, u32 tile) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
  const int here = warp * 16 + lane % 16;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const u32 at = tile + place(here, 16 * i + lane / 16 * 8);
    u32 x[4], y[4];
    load_matrices(x, at);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int j = 2 * i + q / 2, bit = j % 4 * 8;
      const u32 bits = mask.words[q % 2][j / 4];
      const float2 addend = unpack_pair(x[q]);
      y[q] = pack_pair(bits & 1u << bit ? sums[8 * i + 2 * q] + addend.x : 0.0f,
                       bits & 2u << bit ? sums[8 * i + 2 * q + 1] + addend.y : 0.0f);
    }
    store_matrices(at, y);
  }
}

/// Adds two columns of the rows that are the thread's: from the tile as stored, in order.
template <int kColumns>
__device__ inline void add_columns(u32 tile, float2& total) {
  const int thread = static_cast<int>(threadIdx.x) % 128, pair = thread % (kColumns / 2),
            half = thread / (kColumns / 2);
  constexpr int kRows = kColumns / 4;  // of 64: all, or half of them
  const u32 box = tile + pair / 32 * 8192 + half * kRows * 128 + pair % 4 * 4, chunk = pair / 4 % 8 * 16;
  float2 even = {0, 0}, odd = {0, 0};
#pragma unroll
  for (int r = 0; r < kRows; r += 2) {
    const float2 p = unpack_pair(load_word(box + r * 128 + (chunk ^ r % 8 * 16)));
    const float2 q = unpack_pair(load_word(box + (r + 1) * 128 + (chunk ^ (r + 1) % 8 * 16)));
    even.x += p.x, even.y += p.y, odd.x += q.x, odd.y += q.y;
  }
  total.x += even.x + odd.x, total.y += even.y + odd.y;
}

template <int kColumns, int kBuffers>
__device__ inline void multiply_tile(float (&sums)[kColumns / 2], const BackCut& cut,
                                     const BackShared<kColumns, kBuffers>& shared, RingPlace& from, Turns& turns) {
  using Tile = BackTile<kColumns, kBuffers>;
  const bool releases = threadIdx.x % 32 == 0;
  if (cut.in_turn) {
    shared.turn_of(turns.group).wait(turns.parity, 1);
    turns.parity ^= 1;
  }
  int before = 0;
  for (int d = 0; d < cut.depths; ++d, from.next(1, cut.stages)) {
    shared.full(from.stage).wait(from.parity, 2);
    const u64 a = operand_at(shared.x + from.stage * Tile::kStageBytes);
    const u64 b = columns_at(shared.weights + d * Tile::kWeightBytes);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      WarpgroupMma<kColumns, 0, 1>::run(sums, a + k * kNextSixteen, b + k * kNextSixteenRows, d > 0 || k > 0);
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

/// Works as expand_kernel does: block b computes column b % column_blocks of tiles b / column_blocks, and so on.
template <int kColumns, int kBuffers>
__global__ void __launch_bounds__(384, 1)
    back_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap w,
                const __grid_constant__ CUtensorMap addend, const __grid_constant__ CUtensorMap dz, const BackCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = BackTile<kColumns, kBuffers>;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();
  const BackShared<kColumns, kBuffers> shared(shared_address(memory), cut);
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / cut.column_blocks;
  if (threadIdx.x == 0) shared.set_up(cut.stages);
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<Tile::kKept>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp == 3) return;
    if (warp == 0) {
      shared.weights_there().arrive_expecting(cut.depths * Tile::kWeightBytes);
      for (int d = 0; d < cut.depths; ++d)
        for (int c = 0; c < kColumns; c += 64)
          load_box(shared.weights + d * Tile::kWeightBytes + c / 64 * 8192, w, first_column + c, d * Tile::kDepth,
                   shared.weights_there());
      RingPlace to;
      for (int tile = first; tile < cut.tiles; tile += step)
        for (int d = 0; d < cut.depths; ++d, to.next(1, cut.stages)) {
          shared.empty(to.stage).wait(to.parity ^ 1, 3);
          shared.full(to.stage).arrive_expecting(Tile::kStageBytes);
          load_box(shared.x + to.stage * Tile::kStageBytes, a, d * Tile::kDepth, tile * Tile::kRows,
                   shared.full(to.stage));
        }
      return;
    }
    const int of = warp - 1, part = first + of * step, parts = 2 * step;
    const auto bring = [&](int tile, int buffer) {
      shared.came(of, buffer).arrive_expecting(Tile::kTileBytes);
      for (int c = 0; c < kColumns; c += 64)
        load_box(shared.tile(of, buffer) + c / 64 * 8192, addend, first_column + c, tile * Tile::kRows,
                 shared.came(of, buffer));
    };
    for (int b = 0; b < kBuffers; ++b)
      if (part + b * parts < cut.tiles) bring(part + b * parts, b);
    RingPlace at;
    for (int tile = part; tile < cut.tiles; tile += parts, at.next(1, kBuffers)) {
      shared.ready(of, at.stage).wait(at.parity, 4);
      for (int c = 0; c < kColumns; c += 64)
        store_box(dz, first_column + c, tile * Tile::kRows, shared.tile(of, at.stage) + c / 64 * 8192);
      commit_stores();
      wait_for_stores_to_read();
      shared.summed(of, at.stage).wait(at.parity, 7);
      if (tile + kBuffers * parts < cut.tiles) bring(tile + kBuffers * parts, at.stage);
    }
    return;
  }
  take_registers<Tile::kTaken>();
  RingPlace from, at;
  from.next(group * cut.depths, cut.stages);
  Turns turns{group};
  float2 total = {0, 0};
  const int thread = static_cast<int>(threadIdx.x) % 128, pair = thread % (kColumns / 2),
            half = thread / (kColumns / 2);
  float2* const to = reinterpret_cast<float2*>(cut.parts + i64{(first * 2 + group) * Tile::kParts + half} * cut.out +
                                               first_column + 2 * pair);
  if (first + group * step >= cut.tiles) *to = total;
  shared.weights_there().wait(0, 5);
  for (int tile = first + group * step; tile < cut.tiles; tile += 2 * step, at.next(1, kBuffers)) {
    float sums[kColumns / 2];
    MaskRows<kColumns> mask;
    mask.load(cut, i64{tile} * Tile::kRows, first_column);
    multiply_tile<kColumns, kBuffers>(sums, cut, shared, from, turns);
    from.next(cut.depths, cut.stages);
    mask.shift();
    shared.came(group, at.stage).wait(at.parity, 6);
    masked_sum<kColumns>(sums, mask, shared.tile(group, at.stage));
    publish_to_copies();
    group_barrier(1 + group, 128);
    if (threadIdx.x % 128 == 0) shared.ready(group, at.stage).arrive();
    add_columns<kColumns>(shared.tile(group, at.stage), total);
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.summed(group, at.stage).arrive();
    if (tile + 2 * step >= cut.tiles)
      *to = total;  // here: with code behind the loop ptxas gives it 168 registers, and spills
  }
#else
  __trap();
#endif
}

// ---- the rest ----

/// Today's pass: dz = mask·half(dx + addend), Σdz.
struct Masked {
  static constexpr int kSums = 1;
  const __half *dx, *addend;
  const std::uint8_t* mask;
  __half* dz;
  struct Kept {};
  struct Loaded {
    Eight dx, addend;
    unsigned bits;
  };
  __device__ Kept keep(int) const { return {}; }
  __device__ Loaded load(i64 at) const { return {Eight::load(dx + at), Eight::load(addend + at), mask[at / 8]}; }
  template <int S>
  __device__ void use(const Kept&, const Loaded& l, i64 at, float (&sums)[S][8]) const {
    float g[8], m[8];
    l.dx.unpack(g), l.addend.unpack(m);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      g[n] = l.bits >> n & 1 ? rounded(g[n] + m[n]) : 0.0f;
      sums[0][n] += g[n];
    }
    Eight::store(g, dz + at);
  }
};

/// Sampled rows in float64.
__global__ void reference_kernel(const __half* a, const __half* w, const __half* addend, const std::uint8_t* mask,
                                 const i64* rows, int in, int out, double* to) {
  const i64 row = rows[blockIdx.x];
  for (int o = static_cast<int>(threadIdx.x); o < out; o += static_cast<int>(blockDim.x)) {
    double sum = static_cast<double>(__half2float(addend[row * out + o]));
    for (int i = 0; i < in; ++i)
      sum +=
          static_cast<double>(__half2float(a[row * in + i])) * static_cast<double>(__half2float(w[i64{i} * out + o]));
    to[i64{blockIdx.x} * out + o] = mask[(row * out + o) / 8] >> (o % 8) & 1 ? sum : 0.0;
  }
}

struct Shape {
  const char* name;
  i64 rows;
  int in, out;  ///< the product's: channels of dc1 and of dz
  float today, model, go;
};
constexpr int kSets = 8, kRounds = 20;

struct Set {
  Array<__half> a, addend, dz;
  Array<std::uint8_t> mask;
  Set(const Shape& s, u32 seed)
      : a(s.rows * s.in), addend(s.rows * s.out), dz(s.rows * s.out), mask(s.rows * s.out / 8) {
    fill(a.data, a.count, seed, Fill::normal, 0.3f, 0.01f);
    fill(addend.data, addend.count, seed + 1000, Fill::normal, 0.5f, 0.02f);
    random_bytes_kernel<<<1024, 256>>>(reinterpret_cast<u32*>(mask.data), mask.count / 4, seed + 3);
    dz.poison();
  }
};

struct Problem {
  Shape s;
  std::vector<Set> sets;
  Array<__half> w, dx;
  Array<float> parts, sums;
  Array<i64> rows_picked;
  std::vector<double> reference;
  float best = 1e9f;

  explicit Problem(const Shape& shape)
      : s(shape),
        w(i64{shape.in} * shape.out),
        dx(shape.rows * shape.out),
        parts(1024ll * shape.out),
        sums(shape.out),
        rows_picked(4096) {
    for (int i = 0; i < kSets; ++i) sets.emplace_back(s, 17u * static_cast<u32>(i) + 5u);
    fill(w.data, w.count, 99, Fill::normal, std::sqrt(2.0f / static_cast<float>(s.in)));
    rows_picked.put(sampled_rows(s.rows));
    Array<double> exact(4096ll * s.out);
    reference_kernel<<<4096, 256>>>(sets[0].a.data, w.data, sets[0].addend.data, sets[0].mask.data, rows_picked.data,
                                    s.in, s.out, exact.data);
    CHECK(cudaGetLastError());
    reference = exact.host();
  }
  Difference check() const {
    Array<__half> got(4096ll * s.out);
    gather_rows_kernel<<<4096, 256>>>(sets[0].dz.data, rows_picked.data, s.out, got.data);
    CHECK(cudaGetLastError());
    return difference_of(got.host(), reference);
  }
};

template <int kColumns, int kBuffers>
void measure_kernel(Problem& p, int multiprocessors, const __half* chain, float chain_us, bool turns) {
  using Tile = BackTile<kColumns, kBuffers>;
  const Shape& s = p.s;
  const int depths = s.in / 64, tiles = static_cast<int>((s.rows + 63) / 64), column_blocks = s.out / kColumns;
  REQUIRE(s.in % 64 == 0 && s.out % kColumns == 0);
  constexpr int kMost = 227 << 10;
  const int round = 2 * depths,
            room = std::min((kMost - Tile::bytes(depths, 0)) / Tile::kStageBytes, Tile::kMostStages);
  if (room < 2) return;
  const int stages = room < round ? room : room - room % round;
  BackCut cut{s.rows, s.out, depths, tiles, column_blocks, stages, turns || stages % round != 0, nullptr, p.parts.data};
  const int bytes = Tile::bytes(depths, stages);
  const int blocks = std::max(1, std::min(multiprocessors / column_blocks, (tiles + 1) / 2)) * column_blocks;
  const int parts = blocks / column_blocks * 2 * Tile::kParts;
  REQUIRE(parts <= 1024);
  const auto wide = static_cast<u64>(s.in), rows = static_cast<u64>(s.rows), out = static_cast<u64>(s.out);
  const CUtensorMap w = tensor_map(p.w.data, {out, wide}, {out}, {64, 64});
  std::vector<CUtensorMap> a, x, y;
  for (const Set& set : p.sets) {
    a.push_back(tensor_map(set.a.data, {wide, rows}, {wide}, {64, 64}));
    x.push_back(tensor_map(set.addend.data, {out, rows}, {out}, {64, 64}));
    y.push_back(tensor_map(set.dz.data, {out, rows}, {out}, {64, 64}));
  }
  CHECK(cudaFuncSetAttribute(back_kernel<kColumns, kBuffers>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const auto run = [&](int i) {
    BackCut c = cut;
    c.mask = p.sets[i].mask.data;
    back_kernel<kColumns, kBuffers><<<blocks, Tile::kThreads, bytes>>>(a[i], w, x[i], y[i], c);
  };
  const auto run_merged = [&](int i) {
    run(i);
    merge_parts(p.parts.data, parts, s.out, p.sums.data);
  };
  u64 seen[3][2] = {};
  for (auto& q : seen) {
    p.sets[0].dz.poison(), p.parts.poison(), p.sums.poison();
    run_merged(0);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    q[0] = checksum(p.sets[0].dz.data, p.sets[0].dz.count * 2);
    q[1] = checksum(p.sums.data, p.sums.count * 4);
  }
  const bool same =
      std::memcmp(seen[0], seen[1], sizeof seen[0]) == 0 && std::memcmp(seen[0], seen[2], sizeof seen[0]) == 0;
  const Difference d = p.check();
  const double sums = sums_error(p.sets[0].dz.data, nullptr, nullptr, s.rows, s.out, 1, p.sums.host());
  const unsigned long long off = apart(p.sets[0].dz.data, chain, s.rows * s.out, 8e-3f);
  const bool right = same && d.nans == 0 && d.error < 4e-4 && d.worst < 2e-3 && sums < 2e-6 && off == 0;
  const float us = microseconds(kSets, kRounds, run), merged = microseconds(kSets, kRounds, run_merged);
  if (right) p.best = std::min(p.best, us);
  const double moved = static_cast<double>(s.rows) * (2.0 * s.in + 4.0 * s.out + s.out / 8.0);
  std::printf(
      "%s back<%d,%d> %d blocks %d stages %3d KiB%s | %7.1f us (%.1f with the parts added)  %.2f TB/s  %.0f TFLOP/s | "
      "chain %.1f | error %.2e worst %.1e NaN %lld, sums %.1e (%d parts), beside chain %llu values, 3 runs %s | %s\n",
      s.name, kColumns, kBuffers, blocks, stages, bytes >> 10, cut.in_turn ? " turns" : "", us, merged,
      moved / us * 1e-6, 2e-6 * static_cast<double>(s.rows) * s.in * s.out / us, chain_us, d.error, d.worst,
      static_cast<long long>(d.nans), sums, parts, off, same ? "equal" : "DIFFER", right ? "right" : "WRONG");
  std::fflush(stdout);
}

void measure(const Shape& s, int multiprocessors) {
  Problem p(s);
  Gemm product{.m = s.rows, .n = s.out, .k = s.in};
  product.describe();
  REQUIRE(product.choose(p.sets[0].a.data, p.w.data, p.dx.data, p.dx.data));
  const int pass_blocks = multiprocessors * 2;
  const auto gemm = [&](int i) { product.run(p.sets[i].a.data, p.w.data, p.dx.data, p.dx.data); };
  const auto chain = [&](int i) {
    const Set& set = p.sets[i];
    gemm(i);
    rows_kernel<<<pass_blocks, 256>>>(Masked{p.dx.data, set.addend.data, set.mask.data, set.dz.data}, s.rows, s.out,
                                      p.parts.data);
    merge_parts(p.parts.data, pass_blocks, s.out, p.sums.data);
  };
  p.sets[0].dz.poison();
  chain(0);
  CHECK(cudaGetLastError());
  const Difference d = p.check();
  const double sums = sums_error(p.sets[0].dz.data, nullptr, nullptr, s.rows, s.out, 1, p.sums.host());
  Array<__half> first(s.rows * s.out);
  CHECK(cudaMemcpy(first.data, p.sets[0].dz.data, first.count * 2, cudaMemcpyDeviceToDevice));
  const float gemm_us = microseconds(kSets, kRounds, gemm), chain_us = microseconds(kSets, kRounds, chain);
  std::printf(
      "%s today: GEMM %.1f + pass %.1f = %.1f us (ledger %.0f) | error %.2e worst %.1e NaN %lld, sums %.1e | %s\n",
      s.name, gemm_us, chain_us - gemm_us, chain_us, s.today, d.error, d.worst, static_cast<long long>(d.nans), sums,
      product.says().c_str());
  std::fflush(stdout);
  if (s.in <= 128) {
    measure_kernel<256, 2>(p, multiprocessors, first.data, chain_us, true);
    measure_kernel<256, 2>(p, multiprocessors, first.data, chain_us, false);
    measure_kernel<128, 3>(p, multiprocessors, first.data, chain_us, false);
  } else if (s.in <= 256) {
    measure_kernel<128, 2>(p, multiprocessors, first.data, chain_us, false);
    measure_kernel<128, 3>(p, multiprocessors, first.data, chain_us, true);
    measure_kernel<256, 1>(p, multiprocessors, first.data, chain_us, false);
  } else {
    measure_kernel<128, 1>(p, multiprocessors, first.data, chain_us, true);
    measure_kernel<128, 2>(p, multiprocessors, first.data, chain_us, true);
  }
  if (s.go > 0)
    std::printf("%s D: best %.1f us beside %.1f: %s (go at <= %.0f, model %.0f)\n", s.name, p.best, chain_us,
                p.best <= s.go ? "GO" : "NO GO", s.go, s.model);
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  const int multiprocessors = start_up();
  const Shape shapes[] = {{"S1", 802816, 64, 256, 442, 265, 300},
                          {"S2", 200704, 128, 512, 228, 134, 155},
                          {"S3", 50176, 256, 1024, 133, 73, 90},
                          {"S4", 12544, 512, 2048, 93, 54, 70}};
  measure({"odd", 64 * 37 + 19, 128, 512, 0, 0, 0}, multiprocessors);
  measure({"odd", 64 * 5 + 1, 512, 256, 0, 0, 0}, multiprocessors);
  for (const Shape& s : shapes)
    if (argc < 2 || std::strstr(argv[1], s.name) != nullptr) measure(s, multiprocessors);
  return 0;
}
