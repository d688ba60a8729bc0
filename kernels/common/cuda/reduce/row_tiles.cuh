// Maps and sums over (rows, channels) arrays on CUDA: a thread keeps a few channels and walks down rows.
#pragma once

#include <utility>

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/common/partial_sums.h"

namespace bantam::kernels::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kWarps = kTileThreads / 32;
inline constexpr std::int64_t kMaxGridY = 65535;

/// Threads of a block: x over packs of channels (a power of two up to 32), y over rows.
inline dim3 tile_block(std::int64_t packs) {
  unsigned lanes = 1;
  while (lanes < 32 && lanes < packs) lanes *= 2;
  return {lanes, kTileThreads / lanes};
}

inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

/// Calls call(std::integral_constant<int, N>) with the largest N of 16 bytes of T, 4 and 1 that divides `channels` and
/// for which all addresses are aligned: N channels are then loaded and stored at once.
template <class T, int kMost = 16 / static_cast<int>(sizeof(T)), class Call, class... Pointers>
void with_pack(Call&& call, std::int64_t channels, const Pointers*... addresses) {
  if constexpr (kMost > 4) {
    if (channels % kMost == 0 && packs_aligned<T, kMost>(addresses...)) {
      return call(std::integral_constant<int, kMost>{});
    }
  }
  if (channels % 4 == 0 && packs_aligned<T, 4>(addresses...)) return call(std::integral_constant<int, 4>{});
  call(std::integral_constant<int, 1>{});
}

/// N floats from a float array of any alignment, c a multiple of N; `otherwise` where it is null.
template <int N>
__device__ inline void load_floats(const float* from, std::int64_t c, float otherwise, float (&values)[N]) {
  if constexpr (N % 4 == 0) {
    if (from != nullptr && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
#pragma unroll
      for (int n = 0; n < N; n += 4) {
        const Pack<float, 4> pack = load_pack<4>(from + c + n);
#pragma unroll
        for (int k = 0; k < 4; ++k) values[n + k] = pack.v[k];
      }
      return;
    }
  }
#pragma unroll
  for (int n = 0; n < N; ++n) values[n] = from ? from[c + n] : otherwise;
}

/// Rows that a thread of a map has under way at a time: with 16 bytes each, enough to hide the memory's latency.
inline constexpr int kRowsAtOnce = 4;
/// Rows at a time of a map or of a sum's terms: its own kRowsAtOnce where it has one, for rows of more bytes.
template <class Work, int kUsual>
consteval int rows_at_once() {
  if constexpr (requires { Work::kRowsAtOnce; }) {
    return Work::kRowsAtOnce;
  } else {
    return kUsual;
  }
}
/// Blocks of a map, at most about: enough to fill any GPU a few times, and few enough that what `start` reads is paid
/// rarely.
inline constexpr std::int64_t kMapBlocks = 8192;
/// Blocks that a map has at least where Map::kRounds asks for more than one tile a block.
inline constexpr std::int64_t kLeastMapBlocks = 512;

/// map: `start(c, std::integral_constant<int, N>)` returns what a thread keeps for its N channels; `load<N>(offset)`
/// reads the N elements at `offset`, and `apply(kept, loaded, offset)` writes there. A block does `rounds` tiles, one
/// after the other: so the array is walked from its first row to its last, and begins with what the sums before it
/// (row_sums.cuh) read last, which the L2 cache still holds. kEarly: launched early, after a kernel that writes what
/// `start` reads and not what `load` reads.
template <int N, bool kEarly, class Map>
__global__ void __launch_bounds__(kTileThreads)
    map_rows_kernel(std::int64_t rows, std::int64_t channels, std::int64_t rounds, Map map) {
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (c >= channels) return;
  constexpr int kRows = rows_at_once<Map, kRowsAtOnce>();
  const std::int64_t tile = std::int64_t{kRows} * blockDim.y, step = blockDim.y * channels;
  const std::int64_t first = blockIdx.y * rounds * tile, end = min(rows, first + rounds * tile);
  const std::int64_t last = rows - 1;
  std::int64_t r = first + threadIdx.y;
  decltype(map.template load<N>(c)) loaded[kRows];
  const auto fetch = [&] {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      loaded[k] = map.template load<N>(min(r + k * static_cast<std::int64_t>(blockDim.y), last) * channels + c);
  };
  if constexpr (kEarly) {
    fetch();
    wait_for_kernel_before();
  }
  const auto kept = map.start(c, std::integral_constant<int, N>{});
  for (bool fetched = kEarly; r < end; r += tile, fetched = false) {
    if (!fetched) fetch();
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (r + k * blockDim.y < rows) map.apply(kept, loaded[k], r * channels + c + k * step);
  }
}

/// Runs `map` over all elements; every thread does four rows (or Map::kRowsAtOnce), or a multiple of four.
template <int N, bool kEarly = false, class Map>
void map_rows(const Exec& exec, std::int64_t rows, std::int64_t channels, const Map& map) {
  if (rows <= 0 || channels <= 0) return;
  const std::int64_t packs = channels / N;
  const dim3 block = tile_block(packs);
  const unsigned columns = blocks_for(packs, block.x);
  const std::int64_t tile = std::int64_t{rows_at_once<Map, kRowsAtOnce>()} * block.y;
  const std::int64_t most = std::clamp<std::int64_t>(kMapBlocks / columns, 1, kMaxGridY);
  const std::int64_t tiles = blocks_for(rows, tile);
  std::int64_t rounds = blocks_for(tiles, most);
  if constexpr (requires { Map::kRounds; })
    if (tiles * columns >= Map::kRounds * kLeastMapBlocks) rounds = std::max(rounds, Map::kRounds);
  const dim3 grid(columns, blocks_for(rows, rounds * tile));
  if constexpr (kEarly) {
    launch_early(exec, map_rows_kernel<N, true, Map>, grid, block, rows, channels, rounds, map);
  } else {
    map_rows_kernel<N, false><<<grid, block, 0, stream_of(exec)>>>(rows, channels, rounds, map);
    check_launch("map_rows_kernel");
  }
}

/// A map from x to y, both (rows, channels): `rule.load<N>(c)` returns what a thread keeps for the N channels from c
/// on, and `rule.apply(kept, v)` changes the N values of a row.
template <class T, class Rule>
struct ChannelMap {
  const T* x;
  Rule rule;
  T* y;

  template <int N>
  __device__ auto start(std::int64_t c, std::integral_constant<int, N>) const {
    return rule.template load<N>(c);
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + at);
  }
  template <int N, class Kept>
  __device__ void apply(const Kept& kept, const Pack<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded, v);
    rule.apply(kept, v);
    repack<N>(v, y + at);
  }
};

/// Adds v[i] of all threads of equal threadIdx.x, for each i, and calls write(i, x, sum) once for each, spread over the
/// block's threads. Every thread of the block must call it. The order of the additions is fixed.
template <int kValues, class Write>
__device__ inline void sum_over_block_rows(const float (&v)[kValues], Write&& write) {
  __shared__ float sums[kWarps][kValues][32];
  const int lanes = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.y) * lanes + static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    float sum = v[i];
    for (int apart = 16; apart >= lanes; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
    if (thread % 32 < lanes) sums[thread / 32][i][threadIdx.x] = sum;
  }
  __syncthreads();
  for (int at = thread; at < kValues * lanes; at += kTileThreads) {
    const int i = at / lanes, x = at % lanes;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i][x];
    write(i, x, sum);
  }
}

/// write(i, Σ over parts of partials[part, i]), in an order that depends on `parts` only. Blocks of 32 x 8 threads.
template <class Write>
__global__ void __launch_bounds__(kTileThreads)
    add_parts_kernel(const float* partials, std::int64_t parts, std::int64_t count, Write write) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum[1] = {};
  if (i < count) {
#pragma unroll 16
    for (std::int64_t part = threadIdx.y; part < parts; part += kWarps) sum[0] += partials[part * count + i];
  }
  sum_over_block_rows(sum, [&](int, int x, float total) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 32 + x;
    if (at < count) write(at, total);
  });
}

template <class Write>
void add_parts(const Exec& exec, const float* partials, std::int64_t parts, std::int64_t count, const Write& write) {
  add_parts_kernel<<<blocks_for(count, 32), dim3(32, kWarps), 0, stream_of(exec)>>>(partials, parts, count, write);
  check_launch("add_parts_kernel");
}

/// Where float32 sums go: over what is there, or added to it.
struct WriteSum {
  float* to;
  bool accumulate;
  __device__ void operator()(std::int64_t i, float sum) const { to[i] = accumulate ? to[i] + sum : sum; }
};

/// Terms of a sum of the values themselves.
template <class T>
struct ValueTerms {
  const T* x;

  template <int N>
  __device__ std::integral_constant<int, N> start(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + at);
  }
  template <int N>
  __device__ void add(std::integral_constant<int, N>, const Pack<T, N>& loaded, std::int64_t, float (&sum)[N]) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] += v[n];
  }
};

}  // namespace bantam::kernels::cuda
