// 3x3 convolutions with wgmma. A tensor copy brings a tile's pixels with one more on each side, 64 channels at a time,
// zeros outside the image; nine taps are nine operands of it that begin at another pixel. Results take the place of
// the pixels in shared memory, and tensor copies store them from there.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warpgroup_tiles.cuh"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/conv/warpgroup_conv3x3_parts.h"

namespace bantam::kernels::cuda {

inline constexpr int kConvTaps = 9;

/// Coordinates along the three axes of WarpgroupConv3x3, or extents.
struct Conv3x3Place {
  int at[3];
};

/// The arguments that a launch's blocks receive besides the tensors. Rows: pixels of 64 channels in shared memory.
struct Conv3x3Cut {
  int depths;  ///< of 64 channels of x
  int out;     ///< channels of y
  int tiles, column_blocks;
  int stages;                      ///< of weights
  int box_bytes, pixel_bytes;      ///< of a tile's input; the same in whole kilobytes
  Conv3x3Place sizes;              ///< of y
  Conv3x3Place tile, unit;         ///< extents
  Conv3x3Place halo;               ///< from a tile's first pixel of x to that of y
  FastDivide by_first, by_second;  ///< tiles along the first and the second axis
  int units[2];                    ///< of a tile, along these
  int pitch[2];                    ///< rows from a pixel to the next one along the second and the third axis
  int tap_row, tap_column;         ///< rows from a tap to that below it, and to that on its right
  int rows_between_groups;         ///< of eight pixels of an operand
  int unit_shift;                  ///< log2 of a unit's first extent
  float* partials;  ///< (parts, 3, out): origin, mean relative to it, Σ of squared differences; null: not wanted
  float* counts;    ///< (parts)

  __device__ Conv3x3Place place_of(int index) const {
    const Divided first = by_first.divide(static_cast<std::uint32_t>(index)), second = by_second.divide(first.quotient);
    return {{static_cast<int>(first.remainder) * tile.at[0], static_cast<int>(second.remainder) * tile.at[1],
             static_cast<int>(second.quotient) * tile.at[2]}};
  }
  /// Where a unit of a tile begins, relative to it.
  __device__ Conv3x3Place unit_in_tile(int u) const {
    return {{u % units[0] * unit.at[0], u / units[0] % units[1] * unit.at[1], u / (units[0] * units[1]) * unit.at[2]}};
  }
  /// The first row of a unit's operand of the first tap.
  __device__ int row_of_unit(int u) const {
    const Conv3x3Place in = unit_in_tile(u);
    return in.at[0] + in.at[1] * pitch[0] + in.at[2] * pitch[1];
  }
};

/// The pixels of a unit that lie in the tensor: the first `extent` along each axis.
struct UnitExtent {
  int extent[2];  ///< 0 where the third coordinate lies outside

  __device__ UnitExtent(const Conv3x3Cut& cut, const Conv3x3Place& first) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      extent[i] = first.at[2] < cut.sizes.at[2] ? max(min(cut.sizes.at[i] - first.at[i], cut.unit.at[i]), 0) : 0;
  }
  __device__ int pixels() const { return extent[0] * extent[1]; }
};

__device__ inline void load_tile(std::uint32_t to, const CUtensorMap& x, const Conv3x3Cut& cut, int tile, int depth,
                                 SharedBarrier barrier) {
  const Conv3x3Place first = cut.place_of(tile);
  barrier.arrive_expecting(cut.box_bytes);
  load_box(to, x, depth * 64, first.at[0] - cut.halo.at[0], first.at[1] - cut.halo.at[1], first.at[2] - cut.halo.at[2],
           barrier);
}

/// Writes a channel's moments of a part.
__device__ inline void write_channel_moments(const Conv3x3Cut& cut, int part, int channel, float origin, float sum,
                                             float squares, int count) {
  float* const to = cut.partials + std::int64_t{part} * 3 * cut.out + channel;
  const float mean = count > 0 ? sum / static_cast<float>(count) : 0.0f;
  to[0] = origin;
  to[cut.out] = mean;
  to[2 * cut.out] = fmaxf(squares - sum * mean, 0.0f);
  if (channel == 0) cut.counts[part] = static_cast<float>(count);
}

// ---- 64 channels in and out: the transpose of y is weights times pixels, 64 channels by 256 pixels a tile. Weights
// stay in shared memory, and two warpgroups alternate: one multiplies while the other writes its tile. ----

struct TallConv {
  static constexpr int kPixels = 256, kPitch = 10;  ///< of a tile; from an image row to the next in its input
  static constexpr int kTaken = 232, kKept = 40, kThreads = 384;
  static constexpr int kTapBytes = 64 * 128, kStages = 3, kPixelBytes = 43 * 1024, kBarriers = 3 + 2 * kStages;
  static constexpr int kBytes = kConvTaps * kTapBytes + kStages * kPixelBytes + kBarriers * 8;
  static_assert(kPixelBytes >= 34 * kPitch * 128 && kPixelBytes >= kPixels * 128 && kPixelBytes % 1024 == 0);

  std::uint32_t weights, pixels, barriers;
  __device__ explicit TallConv(std::uint32_t base)
      : weights(base), pixels(weights + kConvTaps * kTapBytes), barriers(pixels + kStages * kPixelBytes) {}
  __device__ SharedBarrier weights_there() const { return {barriers}; }
  __device__ SharedBarrier turn_of(int group) const { return {barriers + 8 * (1 + group)}; }
  __device__ SharedBarrier full(int stage) const { return {barriers + 8 * (3 + stage)}; }
  __device__ SharedBarrier empty(int stage) const { return {barriers + 8 * (3 + kStages + stage)}; }
  __device__ std::uint32_t stage(int i) const { return pixels + i * kPixelBytes; }
  __device__ void set_up() const {
    weights_there().init(1);
    for (int g = 0; g < 2; ++g) turn_of(g).init(4);  // a warpgroup's warps
    for (int i = 0; i < kStages; ++i) full(i).init(1), empty(i).init(1);
    publish_barriers();
  }
};

/// The moments of a thread's two channels, g and g + 8 of its warp's sixteen, over the pixels 8j + 2t and 8j + 2t + 1.
struct TallMoments {
  float origin[2] = {}, sum[2] = {}, squares[2] = {};
  int count = 0;
};

/// The sums, rounded, with a pixel's channels side by side, where the tile's input lay; adds to the moments.
template <class T>
__device__ inline void finish_tall(const float (&sums)[TallConv::kPixels / 2], std::uint32_t to,
                                   const UnitExtent& inside, TallMoments& moments) {
  using Pair = HalfPair<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  // Matrices: channels 0 to 7 and 8 to 15 of eight pixels, then of the next eight.
  const std::uint32_t at = to + (lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
  if (moments.count == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      moments.origin[h] = __shfl_sync(0xffffffffu, floats_of(Pair::pack(sums[2 * h], sums[2 * h])).x, lane & ~3);
  }
  const bool low = lane % 4 * 2 < inside.extent[0], high = lane % 4 * 2 + 1 < inside.extent[0];
  float sum[2] = {}, squares[2] = {};
#pragma unroll
  for (int j = 0; j < TallConv::kPixels / 8; j += 2) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int h = i % 2;
      const auto pair = Pair::pack(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
      pairs[i] = bits_of(pair);
      const float2 v = floats_of(pair);
      const bool row = j + i / 2 < inside.extent[1];
      const float p = row && low ? v.x - moments.origin[h] : 0.0f, q = row && high ? v.y - moments.origin[h] : 0.0f;
      sum[h] += p + q;
      squares[h] = fmaf(p, p, fmaf(q, q, squares[h]));
    }
    store_matrices_transposed(at + j * 1024, pairs);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) moments.sum[h] += sum[h], moments.squares[h] += squares[h];
  moments.count += inside.pixels();
}

__device__ inline void write_tall_moments(const TallMoments& moments, const Conv3x3Cut& cut, int part) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = moments.sum[h], squares = moments.squares[h];
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, apart);
      squares += __shfl_xor_sync(0xffffffffu, squares, apart);
    }
    if (lane % 4 == 0)
      write_channel_moments(cut, part, warp * 16 + lane / 4 + 8 * h, moments.origin[h], sum, squares, moments.count);
  }
}

/// Block b has tiles b, b + blocks, and so on; its warpgroups alternate.
template <class T, bool kGradient>
__global__ void __launch_bounds__(TallConv::kThreads, 1)
    tall_conv3x3_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap y, const Conv3x3Cut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = TallConv;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();  // the swizzle's pattern starts there
  const Tile shared(shared_address(memory));
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) shared.set_up();
  wait_then_let_next_start();  // all blocks run at once, so the next kernel delays none of them
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<Tile::kKept>();
    if (threadIdx.x % 128 != 0) return;
    shared.weights_there().arrive_expecting(kConvTaps * Tile::kTapBytes);
    for (int s = 0; s < kConvTaps; ++s)
      load_box(shared.weights + s * Tile::kTapBytes, w, 0, kGradient ? kConvTaps - 1 - s : s, 0,
               shared.weights_there());
    RingPlace to;
    for (int tile = first; tile < cut.tiles; tile += step, to.next(1, Tile::kStages)) {
      shared.empty(to.stage).wait(to.parity ^ 1);
      load_tile(shared.stage(to.stage), x, cut, tile, 0, shared.full(to.stage));
    }
    return;
  }
  take_registers<Tile::kTaken>();
  const int part = first + group * step, parts = 2 * step;
  const bool releases = threadIdx.x % 32 == 0;
  RingPlace from;
  from.next(group, Tile::kStages);
  Turns turns{group};
  TallMoments moments;
  if (cut.partials != nullptr && part >= cut.tiles) write_tall_moments(moments, cut, part);
  // wgmma reads w as stored (out, in), or as gradient the transpose of (in, out).
  const std::uint64_t weights = kGradient ? columns_at(shared.weights) : operand_at(shared.weights);
  constexpr std::uint64_t kNext = kGradient ? kNextSixteenRows : kNextSixteen;
  shared.weights_there().wait(0);
  for (int tile = part; tile < cut.tiles; tile += parts, from.next(2, Tile::kStages)) {
    float sums[Tile::kPixels / 2];
    const std::uint32_t stage = shared.stage(from.stage);
    shared.turn_of(group).wait(turns.parity);
    turns.parity ^= 1;
    // In turn: so all copies before this one have been waited for, and an even round of the ring is not taken for an
    // odd one.
    shared.full(from.stage).wait(from.parity);
    const std::uint64_t pixels = operand_at(stage, Tile::kPitch * 128);
    begin_products();
#pragma unroll
    for (int s = 0; s < kConvTaps; ++s)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupMma<T, Tile::kPixels, kGradient, 0>::run(
            sums, weights + s * (Tile::kTapBytes >> 4) + k * kNext,
            pixels + (s / 3 * Tile::kPitch + s % 3) * kNextRow + k * kNextSixteen, s > 0 || k > 0);
    commit_products();
    if (releases) shared.turn_of(group ^ 1).arrive();
    wait_for_products<0>();
    products_done(sums);
    const Conv3x3Place place = cut.place_of(tile);
    finish_tall<T>(sums, stage, UnitExtent(cut, place), moments);
    publish_to_copies();
    sync_warpgroup(1 + group);
    if (threadIdx.x % 128 == 0) {
      store_box(y, 0, place.at[0], place.at[1], place.at[2], stage);
      commit_stores();
      wait_for_stores_to_read();
      shared.empty(from.stage).arrive();
    }
    if (cut.partials != nullptr && tile + parts >= cut.tiles) write_tall_moments(moments, cut, part);
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

// ---- other channels: pixels times weights, 256 pixels by kColumns channels a tile, of which each warpgroup computes
// two units of 64 pixels. Weights come tap by tap; pixels of the next 64 channels come while these are multiplied. ----

template <int kTileColumns>
struct WideConv {
  static constexpr int kColumns = kTileColumns, kTaken = 232, kKept = 40, kThreads = 384;
  static constexpr int kWeightBytes = kColumns * 128;  ///< of a stage
  static constexpr int kResultBytes = 16 * 1024;       ///< of a warpgroup: a unit, or sums of all threads
  static constexpr int kPixelStages = 2, kMostStages = 12, kBarriers = 2 * (kPixelStages + kMostStages);
  static constexpr int bytes(int pixel_bytes, int stages) {
    return kPixelStages * pixel_bytes + stages * kWeightBytes + kBarriers * 8;
  }

  std::uint32_t pixels, weights, barriers;
  int pixel_bytes;
  __device__ WideConv(std::uint32_t base, const Conv3x3Cut& cut)
      : pixels(base),
        weights(pixels + kPixelStages * cut.pixel_bytes),
        barriers(weights + cut.stages * kWeightBytes),
        pixel_bytes(cut.pixel_bytes) {}
  __device__ SharedBarrier barrier(int i) const { return {barriers + 8 * i}; }
  __device__ SharedBarrier pixels_full(int i) const { return barrier(i); }
  __device__ SharedBarrier pixels_empty(int i) const { return barrier(kPixelStages + i); }
  __device__ SharedBarrier weights_full(int i) const { return barrier(2 * kPixelStages + i); }
  __device__ SharedBarrier weights_empty(int i) const { return barrier(2 * kPixelStages + kMostStages + i); }
  __device__ std::uint32_t pixels_at(int i) const { return pixels + i * pixel_bytes; }
  __device__ std::uint32_t weights_at(int i) const { return weights + i * kWeightBytes; }
  __device__ void set_up(int stages) const {
    constexpr int kWarps = 8;  // of both warpgroups
    for (int i = 0; i < kPixelStages; ++i) pixels_full(i).init(1), pixels_empty(i).init(kWarps);
    for (int i = 0; i < stages; ++i) weights_full(i).init(1), weights_empty(i).init(kWarps);
    publish_barriers();
  }
};

/// Brings the stages of pixels and of weights in the order in which they are multiplied. One thread.
template <bool kGradient, class Tile>
__device__ inline void copy_stages(const CUtensorMap& x, const CUtensorMap& w, const Conv3x3Cut& cut,
                                   const Tile& shared, int first_column, int first, int step) {
  RingPlace pixels, weights;
  for (int tile = first; tile < cut.tiles; tile += step)
    for (int d = 0; d < cut.depths; ++d, pixels.next(1, Tile::kPixelStages)) {
      shared.pixels_empty(pixels.stage).wait(pixels.parity ^ 1);
      load_tile(shared.pixels_at(pixels.stage), x, cut, tile, d, shared.pixels_full(pixels.stage));
      for (int s = 0; s < kConvTaps; ++s, weights.next(1, cut.stages)) {
        const SharedBarrier full = shared.weights_full(weights.stage);
        const std::uint32_t to = shared.weights_at(weights.stage);
        shared.weights_empty(weights.stage).wait(weights.parity ^ 1);
        full.arrive_expecting(Tile::kWeightBytes);
        if constexpr (kGradient) {
          for (int c = 0; c < Tile::kColumns; c += 64)
            load_box(to + c * 128, w, first_column + c, kConvTaps - 1 - s, d * 64, full);
        } else {
          load_box(to, w, d * 64, s, first_column, full);
        }
      }
    }
}

/// A unit's results on their way out, and the moments of eight columns a thread.
template <class T, int kColumns>
struct WideResults {
  static constexpr int kLanes = kColumns / 8, kTogether = 128 / kLanes;  ///< threads of a row, rows at once
  int barrier;
  int thread = static_cast<int>(threadIdx.x) % 128;
  int row = thread / kLanes, column = thread % kLanes * 8;
  int count = 0;
  float origin[8] = {}, sum[8] = {}, squares[8] = {};

  __device__ void load(std::uint32_t at, int r, float (&v)[8]) const {
    std::uint32_t words[4];
    load_shared_words(words, at + place_in_boxes(r, column));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = floats_of(HalfPair<T>::of(words[i]));
      v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
    }
  }
  /// Rounds the sums into shared memory.
  __device__ void put(const float (&sums)[kColumns / 2], std::uint32_t at) const {
    const int lane = thread % 32, here = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = bits_of(HalfPair<T>::pack(sums[8 * j + 2 * i], sums[8 * j + 2 * i + 1]));
      store_matrices(at + place_in_boxes(here, 16 * j + lane / 16 * 8), pairs);
    }
  }
  /// Adds the pixels inside of a unit that lies in shared memory. The origin is the first such pixel of a part.
  __device__ void add(std::uint32_t at, const Conv3x3Cut& cut, const UnitExtent& inside) {
    if (count == 0 && inside.pixels() > 0) load(at, 0, origin);
    count += inside.pixels();
#pragma unroll 2
    for (int r = row; r < 64; r += kTogether) {
      const int second = r >> cut.unit_shift, first = r - (second << cut.unit_shift);
      if (first >= inside.extent[0] || second >= inside.extent[1]) continue;
      float v[8];
      load(at, r, v);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        v[n] -= origin[n];
        sum[n] += v[n];
        squares[n] = fmaf(v[n], v[n], squares[n]);
      }
    }
  }
  /// Adds up the warpgroup's sums in the order of their first rows, and writes the part's moments. `scratch`:
  /// (kTogether, kColumns), in shared memory that nothing else uses.
  __device__ void write_moments(const Conv3x3Cut& cut, int first_column, int part, char* scratch) const {
    auto* const sums = reinterpret_cast<float4*>(scratch);
#pragma unroll
    for (int n = 0; n < 8; ++n) sums[row * kColumns + column + n] = {origin[n], sum[n], squares[n], 0.0f};
    sync_warpgroup(barrier);
    if (thread >= kColumns) return;
    float total = 0, squared = 0;
#pragma unroll
    for (int r = 0; r < kTogether; ++r) {
      const float4 v = sums[r * kColumns + thread];
      total += v.y, squared += v.z;
    }
    write_channel_moments(cut, part, first_column + thread, sums[thread].x, total, squared, count);
  }
};

/// Block b computes column block b % column_blocks of tiles b / column_blocks, and so on.
template <class T, int kColumns, bool kGradient>
__global__ void __launch_bounds__(WideConv<kColumns>::kThreads, 1)
    wide_conv3x3_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap y, const Conv3x3Cut cut) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = WideConv<kColumns>;
  extern __shared__ __align__(1024) char memory[];
  if (shared_address(memory) % 1024 != 0) __trap();  // the swizzle's pattern starts there
  const Tile shared(shared_address(memory), cut);
  const int first_column = static_cast<int>(blockIdx.x) % cut.column_blocks * kColumns;
  const int first = static_cast<int>(blockIdx.x) / cut.column_blocks;
  const int step = static_cast<int>(gridDim.x) / cut.column_blocks;
  if (threadIdx.x == 0) shared.set_up(cut.stages);
  wait_then_let_next_start();  // all blocks run at once, so the next kernel delays none of them
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    keep_registers<Tile::kKept>();
    if (threadIdx.x % 128 == 0) copy_stages<kGradient>(x, w, cut, shared, first_column, first, step);
    return;
  }
  take_registers<Tile::kTaken>();
  const bool releases = threadIdx.x % 32 == 0;
  WideResults<T, kColumns> results{1 + group};
  RingPlace pixels, weights;
  const int row[2] = {cut.row_of_unit(2 * group), cut.row_of_unit(2 * group + 1)};
  for (int tile = first; tile < cut.tiles; tile += step) {
    float sums[2][kColumns / 2];
    int pixels_before = 0, weights_before = 0;
    for (int d = 0; d < cut.depths; ++d) {
      shared.pixels_full(pixels.stage).wait(pixels.parity);
      const std::uint64_t units = operand_at(shared.pixels_at(pixels.stage), cut.rows_between_groups * 128);
      int tap_row = 0, tap = 0;  // rows of shared memory
      for (int s = 0; s < kConvTaps; ++s, weights.next(1, cut.stages)) {
        shared.weights_full(weights.stage).wait(weights.parity);
        const std::uint64_t a = units + tap * kNextRow;
        const std::uint32_t stage = shared.weights_at(weights.stage);
        const std::uint64_t b = kGradient ? columns_at(stage) : operand_at(stage);
        constexpr std::uint64_t kNext = kGradient ? kNextSixteenRows : kNextSixteen;
        begin_products();
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int u = 0; u < 2; ++u)
            WarpgroupMma<T, kColumns, 0, kGradient>::run(sums[u], a + row[u] * kNextRow + k * kNextSixteen,
                                                         b + k * kNext, d > 0 || s > 0 || k > 0);
        commit_products();
        if (d > 0 || s > 0) {
          wait_for_products<1>();
          if (releases) {
            shared.weights_empty(weights_before).arrive();
            if (s == 0) shared.pixels_empty(pixels_before).arrive();
          }
        }
        weights_before = weights.stage;
        tap += cut.tap_column;
        if (s % 3 == 2) tap = tap_row += cut.tap_row;
      }
      pixels_before = pixels.stage;
      pixels.next(1, Tile::kPixelStages);
    }
    wait_for_products<0>();
    products_done(sums[0]);
    products_done(sums[1]);
    if (releases) shared.weights_empty(weights_before).arrive();
    asm volatile("bar.sync 3, 256;" ::: "memory");  // both warpgroups have read the pixels that results replace
    const std::uint32_t at = shared.pixels_at(pixels_before) + group * Tile::kResultBytes;
    const Conv3x3Place place = cut.place_of(tile);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      Conv3x3Place unit = cut.unit_in_tile(2 * group + u);
#pragma unroll
      for (int i = 0; i < 3; ++i) unit.at[i] += place.at[i];
      if (u > 0) {
        if (results.thread == 0) wait_for_stores_to_read();
        sync_warpgroup(1 + group);
      }
      results.put(sums[u], at);
      publish_to_copies();
      sync_warpgroup(1 + group);
      if (results.thread == 0) {
        for (int c = 0; c < kColumns; c += 64)
          store_box(y, first_column + c, unit.at[0], unit.at[1], unit.at[2], at + c * 128);
        commit_stores();
      }
      if (cut.partials != nullptr) results.add(at, cut, UnitExtent(cut, unit));
    }
    if (results.thread == 0) wait_for_stores_to_read();
    if (cut.partials != nullptr && tile + step >= cut.tiles) {
      sync_warpgroup(1 + group);
      results.write_moments(cut, first_column, 2 * first + group, memory + (at - shared_address(memory)));
    }
    __syncwarp();
    if (releases) shared.pixels_empty(pixels_before).arrive();
  }
#else
  __trap();  // launched only where has_warpgroups() says so
#endif
}

}  // namespace bantam::kernels::cuda
