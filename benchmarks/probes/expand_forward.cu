// Step C: out = relu(k ⊙ (ã·Wᵀ) + b + x) and its mask, in one wgmma kernel; beside today's chain, cuBLASLt's epilogue
// and chunks through the L2.
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a expand_forward.cu -lcublasLt
#include "gemm.cuh"
#include "tiles.cuh"

using namespace probe;

// ---- the kernel: an epilogue policy AffineSum of kernels/pointwise/cuda/warpgroup_product.cuh ----

struct ExpandCut {
  i64 rows;
  int out, depths, tiles, column_blocks, stages;
  bool in_turn;
  const float* factor;  ///< k (out)
  const float* shift;   ///< b (out)
  std::uint8_t* mask;   ///< bits of out > 0, as masked_activation.h: bit n % 8 of byte n / 8
  bool once;            ///< x is read with the hint that it leaves the L2 first
};

/// A block's shared memory: weights, tiles that hold x before and y after, stages of ã, k and b, barriers.
template <int kColumns, int kBuffers>
struct ExpandTile {
  static constexpr int kRows = 64, kDepth = 64, kWarpgroups = 2, kTaken = 232, kKept = 40, kThreads = 384;
  static constexpr int kStageBytes = kRows * 128, kWeightBytes = kColumns * 128,
                       kTileBytes = kColumns / 64 * kRows * 128;
  static constexpr int kMostStages = 16, kVectorBytes = kColumns * 8,
                       kBarriers = 1 + 2 + 2 * kMostStages + 4 * kBuffers;
  static constexpr int bytes(int depths, int stages) {
    return depths * kWeightBytes + kWarpgroups * kBuffers * kTileBytes + stages * kStageBytes + kVectorBytes +
           kBarriers * 8;
  }
};

template <int kColumns, int kBuffers>
struct ExpandShared {
  using Tile = ExpandTile<kColumns, kBuffers>;
  u32 weights, tiles, x, vectors, barriers;
  __device__ ExpandShared(u32 base, const ExpandCut& cut)
      : weights(base),
        tiles(weights + cut.depths * Tile::kWeightBytes),
        x(tiles + Tile::kWarpgroups * kBuffers * Tile::kTileBytes),
        vectors(x + cut.stages * Tile::kStageBytes),
        barriers(vectors + Tile::kVectorBytes) {}
  __device__ SharedBarrier weights_there() const { return {barriers}; }
  __device__ SharedBarrier turn_of(int group) const { return {barriers + 8 * (1 + group)}; }
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * (3 + stage)}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (3 + Tile::kMostStages + stage)}; }
  /// The residual's tile has come; the results lie in its place.
  __device__ SharedBarrier came(int group, int buffer) const {
    return {barriers + 8 * (3 + 2 * Tile::kMostStages + group * kBuffers + buffer)};
  }
  __device__ SharedBarrier ready(int group, int buffer) const {
    return {barriers + 8 * (3 + 2 * Tile::kMostStages + 2 * kBuffers + group * kBuffers + buffer)};
  }
  __device__ u32 tile(int group, int buffer) const { return tiles + (group * kBuffers + buffer) * Tile::kTileBytes; }
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

/// Bits "above 0" of a warpgroup's results, gathered while they are made: lane 4g + t sees two neighbouring columns of
/// a byte, and ends with whole bytes.
template <int kColumns>
struct MaskBits {
  static constexpr int kWords = kColumns / 128;
  u32 pairs[2][kWords][2] = {};
  /// `set`: 0xffff for each element above 0, of columns 8j + 2t and 8j + 2t + 1; upper: rows g + 8.
  __device__ void add(int j, int upper, u32 set) {
    const int u = kWords == 2 ? j >> 2 & 1 : 0, slot = kWords == 2 ? j >> 3 & 3 : j >> 2 & 3, byte = j & 3;
    const int at = (byte & 1) * 8 + slot * 2;
    pairs[upper][u][byte >> 1] |= set & (1u << at | 1u << (17 + at));
  }
  /// Bytes 4(t + 4u ...) of a row: word u of lane t has bytes kWords·4t + 4u and on.
  __device__ u32 word(int upper, int u) const {
    const u32 low = pairs[upper][u][0] | pairs[upper][u][0] >> 16, high = pairs[upper][u][1] | pairs[upper][u][1] >> 16;
    u32 w = __byte_perm(low, high, 0x5410);
    const u32 lane = threadIdx.x;
    u32 other = __shfl_xor_sync(0xffffffffu, w, 1);
    w = lane & 1 ? (w & 0xccccccccu) | (other >> 2 & 0x33333333u) : (w & 0x33333333u) | (other << 2 & 0xccccccccu);
    other = __shfl_xor_sync(0xffffffffu, w, 2);
    return lane & 2 ? (w & 0xf0f0f0f0u) | (other >> 4 & 0x0f0f0f0fu) : (w & 0x0f0f0f0fu) | (other << 4 & 0xf0f0f0f0u);
  }
};

__device__ inline u32 pack_relu(float low, float high) {
  u32 pair;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline u32 above_zero(u32 pair) {
  return __hgt2_mask(*reinterpret_cast<const __half2*>(&pair), __half2{__ushort_as_half(0), __ushort_as_half(0)});
}

/// out = relu(k ⊙ acc + b + x), in the place of x; and the mask.
template <int kColumns>
struct AffineSum {
  __device__ static void apply(const float (&sums)[kColumns / 2], u32 tile, u32 vectors, const ExpandCut& cut,
                               i64 first_row, int first_column) {
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
    const int here = warp * 16 + lane % 16;
    MaskBits<kColumns> bits;
#pragma unroll
    for (int i = 0; i < kColumns / 16; ++i) {
      const u32 at = tile + place(here, 16 * i + lane / 16 * 8);
      u32 x[4], y[4];
      load_matrices(x, at);
      const float4 left = load_vector(vectors + (16 * i + lane % 4 * 2) * 8),
                   right = load_vector(vectors + (16 * i + 8 + lane % 4 * 2) * 8);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float4 v = q < 2 ? left : right;
        const float2 residual = unpack_pair(x[q]);
        y[q] = pack_relu(fmaf(sums[8 * i + 2 * q], v.x, v.y) + residual.x,
                         fmaf(sums[8 * i + 2 * q + 1], v.z, v.w) + residual.y);
        bits.add(2 * i + q / 2, q % 2, above_zero(y[q]));
      }
      store_matrices(at, y);
    }
    publish_to_copies();
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const i64 row = first_row + warp * 16 + lane / 4 + 8 * upper;
      std::uint8_t* const to = cut.mask + row * (cut.out / 8) + first_column / 8;
      if constexpr (kColumns == 256) {
        const uint2 words = {bits.word(upper, 0), bits.word(upper, 1)};
        if (row < cut.rows) reinterpret_cast<uint2*>(to)[lane % 4] = words;
      } else {
        const u32 word = bits.word(upper, 0);
        if (row < cut.rows) reinterpret_cast<u32*>(to)[lane % 4] = word;
      }
    }
  }
};

template <int kColumns, int kBuffers>
__device__ inline void multiply_tile(float (&sums)[kColumns / 2], const ExpandCut& cut,
                                     const ExpandShared<kColumns, kBuffers>& shared, RingPlace& from, Turns& turns) {
  using Tile = ExpandTile<kColumns, kBuffers>;
  const bool releases = threadIdx.x % 32 == 0;
  if (cut.in_turn) {
    shared.turn_of(turns.group).wait(turns.parity, 1);
    turns.parity ^= 1;
  }
  int before = 0;
  for (int d = 0; d < cut.depths; ++d, from.next(1, cut.stages)) {
    shared.full(from.stage).wait(from.parity, 2);
    const u64 a = operand_at(shared.x + from.stage * Tile::kStageBytes);
    const u64 b = operand_at(shared.weights + d * Tile::kWeightBytes);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      WarpgroupMma<kColumns>::run(sums, a + k * kNextSixteen, b + k * kNextSixteen, d > 0 || k > 0);
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

/// Block b computes column b % column_blocks of tiles b / column_blocks, and so on; its warpgroups alternate. The last
/// warpgroup's warp 0 brings weights and stages of ã; its warps 1 and 2 bring a warpgroup's tiles of x and take its
/// results away.
template <int kColumns, int kBuffers>
__global__ void __launch_bounds__(384, 1)
    expand_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap w,
                  const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y, const ExpandCut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = ExpandTile<kColumns, kBuffers>;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();
  const ExpandShared<kColumns, kBuffers> shared(shared_address(memory), cut);
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / cut.column_blocks;
  if (threadIdx.x == 0) shared.set_up(cut.stages);
  auto* const vectors = reinterpret_cast<float2*>(memory + (shared.vectors - shared.weights));
  for (int c = static_cast<int>(threadIdx.x); c < kColumns; c += Tile::kThreads)
    vectors[c] = {cut.factor[first_column + c], cut.shift[first_column + c]};
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == Tile::kWarpgroups) {
    keep_registers<Tile::kKept>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (threadIdx.x % 32 != 0 || warp == 3) return;
    if (warp == 0) {
      shared.weights_there().arrive_expecting(cut.depths * Tile::kWeightBytes);
      for (int d = 0; d < cut.depths; ++d)
        load_box(shared.weights + d * Tile::kWeightBytes, w, d * Tile::kDepth, first_column, shared.weights_there());
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
    const int of = warp - 1, part = first + of * step, parts = Tile::kWarpgroups * step;
    const auto bring = [&](int tile, int buffer) {
      shared.came(of, buffer).arrive_expecting(Tile::kTileBytes);
      for (int c = 0; c < kColumns; c += 64)
        if (const u32 to = shared.tile(of, buffer) + c / 64 * (64 * 128); cut.once)
          load_box_once(to, x, first_column + c, tile * Tile::kRows, shared.came(of, buffer));
        else
          load_box(to, x, first_column + c, tile * Tile::kRows, shared.came(of, buffer));
    };
    for (int b = 0; b < kBuffers; ++b)
      if (part + b * parts < cut.tiles) bring(part + b * parts, b);
    RingPlace at;
    for (int tile = part; tile < cut.tiles; tile += parts, at.next(1, kBuffers)) {
      shared.ready(of, at.stage).wait(at.parity, 4);
      for (int c = 0; c < kColumns; c += 64)
        store_box(y, first_column + c, tile * Tile::kRows, shared.tile(of, at.stage) + c / 64 * (64 * 128));
      commit_stores();
      wait_for_stores_to_read();
      if (tile + kBuffers * parts < cut.tiles) bring(tile + kBuffers * parts, at.stage);
    }
    return;
  }
  take_registers<Tile::kTaken>();
  RingPlace from, at;
  from.next(group * cut.depths, cut.stages);
  Turns turns{group};
  shared.weights_there().wait(0, 5);
  for (int tile = first + group * step; tile < cut.tiles; tile += Tile::kWarpgroups * step, at.next(1, kBuffers)) {
    float sums[kColumns / 2];
    multiply_tile<kColumns, kBuffers>(sums, cut, shared, from, turns);
    from.next((Tile::kWarpgroups - 1) * cut.depths, cut.stages);
    shared.came(group, at.stage).wait(at.parity, 6);
    AffineSum<kColumns>::apply(sums, shared.tile(group, at.stage), shared.vectors, cut, i64{tile} * Tile::kRows,
                               first_column);
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.ready(group, at.stage).arrive();
  }
#else
  __trap();
#endif
}

// ---- the rest: references and today's chain ----

/// out = relu(half(k·c + b) + x), mask: today's pass, eight channels a thread, four rows at a time.
__global__ void __launch_bounds__(256)
    sum_pass_kernel(const __half* c3, const __half* x, const float* factor, const float* shift, __half* out,
                    std::uint8_t* mask, i64 rows, int channels) {
  const int lanes = channels / 8, together = 256 / lanes > 0 ? 256 / lanes : 1;
  const int lane = static_cast<int>(threadIdx.x) % lanes, at = static_cast<int>(threadIdx.x) / lanes;
  float k[8], b[8];
  for (int n = 0; n < 8; ++n) k[n] = factor[lane * 8 + n], b[n] = shift[lane * 8 + n];
  const i64 step = i64{gridDim.x} * together;
  for (i64 row = i64{blockIdx.x} * together + at; row < rows; row += 4 * step) {
    uint4 left[4], right[4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (row + r * step < rows) {
        left[r] = *reinterpret_cast<const uint4*>(c3 + (row + r * step) * channels + lane * 8);
        right[r] = *reinterpret_cast<const uint4*>(x + (row + r * step) * channels + lane * 8);
      }
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (row + r * step < rows) {
        const __half* l = reinterpret_cast<const __half*>(&left[r]);
        const __half* q = reinterpret_cast<const __half*>(&right[r]);
        uint4 packed;
        __half* const y = reinterpret_cast<__half*>(&packed);
        unsigned bits = 0;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float v = __half2float(__float2half_rn(fmaf(__half2float(l[n]), k[n], b[n]))) + __half2float(q[n]);
          bits |= (v > 0.0f ? 1u : 0u) << n;
          y[n] = __float2half_rn(fmaxf(v, 0.0f));
        }
        *reinterpret_cast<uint4*>(out + (row + r * step) * channels + lane * 8) = packed;
        mask[(row + r * step) * lanes + lane] = static_cast<std::uint8_t>(bits);
      }
  }
}

/// Sampled rows in float64: sum before the ReLU.
__global__ void reference_kernel(const __half* a, const __half* w, const __half* x, const float* factor,
                                 const float* shift, const i64* rows, int in, int out, double* to) {
  const i64 row = rows[blockIdx.x];
  for (int o = static_cast<int>(threadIdx.x); o < out; o += static_cast<int>(blockDim.x)) {
    double sum = 0;
    for (int c = 0; c < in; ++c)
      sum += static_cast<double>(__half2float(a[row * in + c])) * static_cast<double>(__half2float(w[i64{o} * in + c]));
    to[i64{blockIdx.x} * out + o] = sum * static_cast<double>(factor[o]) + static_cast<double>(shift[o]) +
                                    static_cast<double>(__half2float(x[row * out + o]));
  }
}
__global__ void pick_rows_kernel(const __half* from, const std::uint8_t* mask, const i64* rows, int out, __half* to,
                                 std::uint8_t* bits) {
  const i64 row = rows[blockIdx.x];
  for (int o = static_cast<int>(threadIdx.x); o < out; o += static_cast<int>(blockDim.x)) {
    to[i64{blockIdx.x} * out + o] = from[row * out + o];
    bits[i64{blockIdx.x} * out + o] = mask[(row * out + o) / 8] >> (o % 8) & 1;
  }
}
/// How many values of two tensors differ by more than `tolerance` (NaN does), and how many bits of two masks.
__global__ void compare_kernel(const __half* a, const __half* b, i64 count, float tolerance, const std::uint8_t* p,
                               const std::uint8_t* q, unsigned long long* wrong) {
  unsigned long long values = 0, bits = 0;
  for (i64 i = blockIdx.x * i64{blockDim.x} + threadIdx.x; i < count; i += i64{gridDim.x} * blockDim.x) {
    const float l = __half2float(a[i]), r = __half2float(b[i]);
    if (!(fabsf(l - r) <= tolerance * (1.0f + fabsf(r)))) ++values;
    if (i % 8 == 0) bits += __popc(p[i / 8] ^ q[i / 8]);
  }
  atomicAdd(wrong, values);
  atomicAdd(wrong + 1, bits);
}

struct Shape {
  const char* name;
  i64 rows;
  int in, out;
  float today, model, go;
};
constexpr int kSets = 8, kRounds = 24;

struct Set {
  Array<__half> a, x, out, c3;
  Array<std::uint8_t> mask;
  Set(const Shape& s, u32 seed)
      : a(s.rows * s.in), x(s.rows * s.out), out(s.rows * s.out), c3(s.rows * s.out), mask(s.rows * s.out / 8) {
    fill(a.data, a.count, seed, Fill::shifted_relu);
    fill(x.data, x.count, seed + 1000, Fill::relu);
    out.poison();
    mask.poison(0xa5);
  }
};

struct Check : Difference {
  i64 bits = 0;
  unsigned long long values_off = 0, bits_off = 0;
};

struct Problem {
  Shape s;
  std::vector<Set> sets;
  Array<__half> w, folded, bias;
  Array<float> factor, shift;
  Array<i64> rows_picked;
  std::vector<double> reference;

  explicit Problem(const Shape& shape)
      : s(shape),
        w(i64{shape.in} * shape.out),
        folded(i64{shape.in} * shape.out),
        bias(shape.out),
        factor(shape.out),
        shift(shape.out),
        rows_picked(4096) {
    for (int i = 0; i < kSets; ++i) sets.emplace_back(s, 17u * static_cast<u32>(i) + 5u);
    fill(w.data, w.count, 99, Fill::normal, std::sqrt(2.0f / static_cast<float>(s.in)));
    fill(factor.data, s.out, 7, Fill::normal, 0.2f, 1.0f);
    fill(shift.data, s.out, 8, Fill::normal, 0.2f);
    const std::vector<float> k = factor.host(), b = shift.host();
    std::vector<__half> wide = w.host(), half_bias(static_cast<std::size_t>(s.out));
    for (i64 i = 0; i < w.count; ++i)
      wide[i] = __float2half_rn(__half2float(wide[i]) * k[static_cast<std::size_t>(i / s.in)]);
    folded.put(wide);
    for (int o = 0; o < s.out; ++o) half_bias[o] = __float2half_rn(b[o]);
    bias.put(half_bias);
    rows_picked.put(sampled_rows(s.rows));
    Array<double> exact(4096ll * s.out);
    reference_kernel<<<4096, 256>>>(sets[0].a.data, w.data, sets[0].x.data, factor.data, shift.data, rows_picked.data,
                                    s.in, s.out, exact.data);
    CHECK(cudaGetLastError());
    reference = exact.host();
  }

  /// Set 0's out and mask against float64; all of it against `other`.
  Check check(const __half* other, const std::uint8_t* other_mask) const {
    Array<__half> got(4096ll * s.out);
    Array<std::uint8_t> bits(4096ll * s.out);
    pick_rows_kernel<<<4096, 256>>>(sets[0].out.data, sets[0].mask.data, rows_picked.data, s.out, got.data, bits.data);
    CHECK(cudaGetLastError());
    const std::vector<std::uint8_t> set = bits.host();
    std::vector<double> exact = reference;
    for (double& v : exact) v = std::max(v, 0.0);
    Check c{difference_of(got.host(), exact)};
    for (std::size_t i = 0; i < set.size(); ++i)
      if (std::fabs(reference[i]) > 2e-3 && (set[i] != 0) != (reference[i] > 0)) ++c.bits;
    if (other != nullptr) {
      Array<unsigned long long> wrong(2);
      wrong.poison(0);
      compare_kernel<<<1024, 256>>>(sets[0].out.data, other, s.rows * s.out, 8e-3f, sets[0].mask.data, other_mask,
                                    wrong.data);
      const auto w2 = wrong.host();
      c.values_off = w2[0], c.bits_off = w2[1];
    }
    return c;
  }
  void poison() {
    sets[0].out.poison();
    sets[0].mask.poison(0xa5);
  }
};

template <int kColumns, int kBuffers>
struct Expand {
  using Tile = ExpandTile<kColumns, kBuffers>;
  ExpandCut cut{};
  int blocks = 0, bytes = 0;
  std::vector<CUtensorMap> a, x, y;
  CUtensorMap w{};
  bool fits = false;
  Expand(const Problem& p, int multiprocessors, int most_stages = 16) {
    const Shape& s = p.s;
    const int depths = s.in / 64, tiles = static_cast<int>((s.rows + 63) / 64), column_blocks = s.out / kColumns;
    REQUIRE(s.in % 64 == 0 && s.out % kColumns == 0);
    constexpr int kMost = 227 << 10;
    const int round = 2 * depths, room = std::min((kMost - Tile::bytes(depths, 0)) / Tile::kStageBytes, most_stages);
    if (room < 2) return;
    fits = true;
    const int stages = room < round ? room : room - room % round;
    cut = {s.rows,        s.out,        depths,  tiles, column_blocks, stages, stages % round != 0,
           p.factor.data, p.shift.data, nullptr, false};
    bytes = Tile::bytes(depths, stages);
    blocks = std::max(1, std::min(multiprocessors / column_blocks, (tiles + 1) / 2)) * column_blocks;
    const auto wide = static_cast<u64>(s.in), rows = static_cast<u64>(s.rows), out = static_cast<u64>(s.out);
    w = tensor_map(p.w.data, {wide, out}, {wide}, {64, kColumns});
    for (const Set& set : p.sets) {
      a.push_back(tensor_map(set.a.data, {wide, rows}, {wide}, {64, 64}));
      x.push_back(tensor_map(set.x.data, {out, rows}, {out}, {64, 64}));
      y.push_back(tensor_map(set.out.data, {out, rows}, {out}, {64, 64}));
    }
    CHECK(cudaFuncSetAttribute(expand_kernel<kColumns, kBuffers>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  }
  void run(const Problem& p, int set) const {
    ExpandCut c = cut;
    c.mask = p.sets[set].mask.data;
    expand_kernel<kColumns, kBuffers><<<blocks, Tile::kThreads, bytes>>>(a[set], w, x[set], y[set], c);
  }
};

template <int kColumns, int kBuffers>
void measure_expand(Problem& p, int multiprocessors, const __half* chain, const std::uint8_t* chain_mask,
                    float chain_us, bool primary, bool once = false, bool turns = false) {
  Expand<kColumns, kBuffers> expand(p, multiprocessors);
  if (!expand.fits) return;
  expand.cut.once = once;
  expand.cut.in_turn = expand.cut.in_turn || turns;
  u64 sums[3][2] = {};
  for (auto& sum : sums) {
    p.poison();
    expand.run(p, 0);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    sum[0] = checksum(p.sets[0].out.data, p.sets[0].out.count * 2);
    sum[1] = checksum(p.sets[0].mask.data, p.sets[0].mask.count);
  }
  const Check c = p.check(chain, chain_mask);
  const bool same =
      sums[0][0] == sums[1][0] && sums[0][0] == sums[2][0] && sums[0][1] == sums[1][1] && sums[0][1] == sums[2][1];
  const bool right = c.nans == 0 && c.error < 4e-4 && c.worst < 2e-3 && c.bits == 0 && c.values_off == 0 && same;
  const float us = microseconds(kSets, kRounds, [&](int set) { expand.run(p, set); });
  const Shape& s = p.s;
  const double bytes = static_cast<double>(s.rows) * (2.0 * s.in + 4.0 * s.out + s.out / 8.0);
  std::printf(
      "%s expand<%d,%d> %d blocks %d stages %3d KiB%s%s | %7.1f us  %.2f TB/s  %.0f TFLOP/s | chain %.1f | error %.2e "
      "worst %.1e bits %lld NaN %lld, beside chain %llu values %llu bits, 3 runs %s | %s",
      s.name, kColumns, kBuffers, expand.blocks, expand.cut.stages, expand.bytes >> 10,
      expand.cut.in_turn ? " turns" : "", once ? " once" : "", us, bytes / us * 1e-6,
      2e-6 * static_cast<double>(s.rows) * s.in * s.out / us, chain_us, c.error, c.worst,
      static_cast<long long>(c.bits), static_cast<long long>(c.nans), c.values_off, c.bits_off,
      same ? "equal" : "DIFFER", right ? "right" : "WRONG");
  if (primary) std::printf(" | %s (go at <= %.0f, model %.0f)", right && us <= s.go ? "GO" : "NO GO", s.go, s.model);
  std::printf("\n");
  std::fflush(stdout);
}

void measure(const Shape& s, int multiprocessors) {
  Problem p(s);
  // (a) today's chain
  Gemm product{.m = s.rows, .n = s.out, .k = s.in, .transpose_b = true};
  product.describe();
  REQUIRE(product.choose(p.sets[0].a.data, p.w.data, p.sets[0].c3.data, p.sets[0].c3.data));
  const auto pass = [&](const Set& set, i64 from, i64 rows, const __half* c3) {
    const int lanes = s.out / 8, together = std::max(1, 256 / lanes);
    const auto blocks =
        static_cast<unsigned>(std::min<i64>(multiprocessors * 6, (rows + 4 * together - 1) / (4 * together)));
    sum_pass_kernel<<<blocks, 256>>>(c3, set.x.data + from * s.out, p.factor.data, p.shift.data,
                                     set.out.data + from * s.out, set.mask.data + from * s.out / 8, rows, s.out);
  };
  const auto chain = [&](int i) {
    const Set& set = p.sets[i];
    product.run(set.a.data, p.w.data, set.c3.data, set.c3.data);
    pass(set, 0, s.rows, set.c3.data);
  };
  p.poison();
  chain(0);
  Check c = p.check(nullptr, nullptr);
  Array<__half> first(s.rows * s.out);
  Array<std::uint8_t> first_mask(s.rows * s.out / 8);
  CHECK(cudaMemcpy(first.data, p.sets[0].out.data, first.count * 2, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy(first_mask.data, p.sets[0].mask.data, first_mask.count, cudaMemcpyDeviceToDevice));
  const float gemm_us = microseconds(
      kSets, kRounds, [&](int i) { product.run(p.sets[i].a.data, p.w.data, p.sets[i].c3.data, p.sets[i].c3.data); });
  const float chain_us = microseconds(kSets, kRounds, chain);
  std::printf(
      "%s (a) chain: GEMM %.1f + pass %.1f = %.1f us (today's ledger %.0f) | error %.2e worst %.1e bits %lld NaN %lld "
      "| %s\n",
      s.name, gemm_us, chain_us - gemm_us, chain_us, s.today, c.error, c.worst, static_cast<long long>(c.bits),
      static_cast<long long>(c.nans), product.says().c_str());
  std::fflush(stdout);

  // the kernel
  if (s.in <= 128) {
    measure_expand<256, 2>(p, multiprocessors, first.data, first_mask.data, chain_us, true);
    measure_expand<256, 2>(p, multiprocessors, first.data, first_mask.data, chain_us, false, true);
    measure_expand<256, 2>(p, multiprocessors, first.data, first_mask.data, chain_us, false, false, true);
    measure_expand<256, 1>(p, multiprocessors, first.data, first_mask.data, chain_us, false);
    measure_expand<128, 3>(p, multiprocessors, first.data, first_mask.data, chain_us, false);
  } else if (s.in <= 256) {
    measure_expand<256, 1>(p, multiprocessors, first.data, first_mask.data, chain_us, true);
    measure_expand<256, 1>(p, multiprocessors, first.data, first_mask.data, chain_us, false, true);
    measure_expand<128, 2>(p, multiprocessors, first.data, first_mask.data, chain_us, false);
    measure_expand<128, 3>(p, multiprocessors, first.data, first_mask.data, chain_us, false);
  } else {
    measure_expand<128, 2>(p, multiprocessors, first.data, first_mask.data, chain_us, true);
    measure_expand<128, 2>(p, multiprocessors, first.data, first_mask.data, chain_us, false, true);
    measure_expand<128, 1>(p, multiprocessors, first.data, first_mask.data, chain_us, false);
  }

  // (b) cuBLASLt with k folded in the weights, β = 1, bias, ReLU and mask
  Gemm fused{.m = s.rows,
             .n = s.out,
             .k = s.in,
             .transpose_b = true,
             .beta = 1.0f,
             .epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS};
  fused.describe(p.bias.data, p.sets[0].mask.data);
  if (fused.choose(p.sets[0].a.data, p.folded.data, p.sets[0].x.data, p.sets[0].out.data)) {
    const auto run = [&](int i) {
      const Set& set = p.sets[i];
      fused.set_pointers(p.bias.data, set.mask.data);
      fused.run(set.a.data, p.folded.data, set.x.data, set.out.data);
    };
    p.poison();
    run(0);
    c = p.check(first.data, first_mask.data);
    const float us = microseconds(kSets, kRounds, run);
    std::printf(
        "%s (b) cuBLASLt RELU_AUX_BIAS, beta 1: %.1f us | error %.2e worst %.1e bits %lld NaN %lld, beside chain %llu "
        "values %llu bits | %s\n",
        s.name, us, c.error, c.worst, static_cast<long long>(c.bits), static_cast<long long>(c.nans), c.values_off,
        c.bits_off, fused.says().c_str());
  }
  std::fflush(stdout);
  // (c) step B's forward: chunks of rows through the L2
  for (const i64 mib : {8, 16, 32}) {
    const i64 rows = std::max<i64>(64, (mib << 20) / (2 * s.out) / 64 * 64);
    if (rows >= s.rows) continue;
    Gemm part{.m = rows, .n = s.out, .k = s.in, .transpose_b = true};
    part.describe();
    __half* const buffer = p.sets[0].c3.data;
    if (!part.choose(p.sets[0].a.data, p.w.data, buffer, buffer)) continue;
    const i64 left = s.rows % rows;
    Gemm last{.m = left, .n = s.out, .k = s.in, .transpose_b = true};
    if (left > 0) {
      last.describe();
      if (!last.choose(p.sets[0].a.data, p.w.data, buffer, buffer)) continue;
    }
    const auto run = [&](int i) {
      const Set& set = p.sets[i];
      for (i64 row = 0; row < s.rows; row += rows) {
        const bool whole = row + rows <= s.rows;
        (whole ? part : last).run(set.a.data + row * s.in, p.w.data, buffer, buffer);
        pass(set, row, whole ? rows : left, buffer);
      }
    };
    p.poison();
    run(0);
    c = p.check(first.data, first_mask.data);
    std::printf("%s (c) chunks of %lld MiB: %.1f us | error %.2e, beside chain %llu values %llu bits\n", s.name,
                static_cast<long long>(mib), microseconds(kSets, 12, run), c.error, c.values_off, c.bits_off);
    std::fflush(stdout);
  }
}

int main(int argc, char** argv) {
  const int multiprocessors = start_up();
  const Shape shapes[] = {{"S1", 802816, 64, 256, 442, 265, 300},
                          {"S2", 200704, 128, 512, 228, 134, 155},
                          {"S3", 50176, 256, 1024, 133, 73, 90},
                          {"S4", 12544, 512, 2048, 108, 54, 70}};
  // a shape with an unfinished tile and few tiles, for correctness alone
  measure({"odd", 64 * 37 + 19, 128, 512, 0, 0, 1e9f}, multiprocessors);
  for (const Shape& s : shapes)
    if (argc < 2 || std::strstr(argv[1], s.name) != nullptr) measure(s, multiprocessors);
  return 0;
}
