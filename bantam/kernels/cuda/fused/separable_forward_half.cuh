// The separable block's forward pass in half types: both convolutions on tensor cores, operands in registers.
//
// A warp computes kMTiles tiles of 16 pixels (rows of a product) by 32 output channels at a time. With pooling, tile i
// holds pixel i of the windows of 16 outputs, so that one lane has a window's four values. The lane with t = lane % 4
// ends up with channels 8t to 8t + 7 of the 32, by a permutation of the weights' columns, and stores them as 16 bytes.
#pragma once

#include "bantam/kernels/cuda/fused/half_pair.cuh"
#include "bantam/kernels/cuda/fused/separable_tiles.cuh"
#include "bantam/kernels/cuda/fused/warp_mma.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kSeparableThreads = 128;

/// Where the parts of a half kernel's shared memory lie, in bytes; sizes of a tile in elements.
struct HalfLayout {
  int groups;        ///< of 32 output channels
  int chunks;        ///< of 8 input channels
  int pixel_stride;  ///< elements between pixels of a tile
  int row_stride;    ///< elements between its rows
  int shifted;       ///< folded: elements between the tile and its copy, which is shifted by one element
  int depthwise_at, bias_at, tile_at, bytes;
};

/// The first operand's registers of a warp: kMTiles tiles of 16 pixels by 16·kSteps values.
template <int kMTiles, int kSteps>
using PixelOperand = std::uint32_t[kMTiles][kSteps][4];

template <class T, bool kFolded, int kSteps, int kPool>
struct SeparableForwardHalf {
  static constexpr int kMTiles = kPool == 2 ? 4 : 2;
  static constexpr int kPositions = kPool == 2 ? 16 : 16 * kMTiles;  ///< outputs of a warp at a time

  /// Folded: up to four input channels, the 3x3 patch times products of both weights. A row of the patch is contiguous
  /// in x: 3·channels elements, taken as pairs, the last half empty where they are odd in number. Pairs of patches that
  /// begin at an odd element are read from the shifted copy.
  __device__ static int row_pairs(int channels) { return (3 * channels + 1) / 2; }

  /// Pairs p of both weights' product for output channel o; 0 past the patch's end.
  __device__ static float folded_weight(const SeparableTiles& t, const T* depthwise, const T* pointwise, int pair,
                                        int half, int o) {
    const int pairs = row_pairs(t.channels), row = pair / pairs, element = (pair % pairs) * 2 + half;
    if (row > 2 || element >= 3 * t.channels) return 0.0f;
    return to_float(depthwise[row * 3 * t.channels + element]) *
           to_float(pointwise[o * t.channels + element % t.channels]);
  }

  /// Second operand of the product, as its lanes hold it: for each group of 32 channels and step of 16 values, four
  /// tiles of 8 columns, two registers each. Column n of tile j is channel 8·(n / 2) + 2j + n % 2 of the group.
  __device__ static void load_weights(const SeparableTiles& t, const HalfLayout& at, const T* depthwise,
                                      const T* pointwise, std::uint32_t* to) {
    for (int i = static_cast<int>(threadIdx.x); i < at.groups * kSteps * 256; i += kSeparableThreads) {
      const int in_vector = i % 4, lane = i / 4 % 32, vector = i / 128 % 2, step = i / 256 % kSteps;
      const int tile = vector * 2 + in_vector / 2, upper = in_vector % 2, n = lane / 4;
      const int o = i / 256 / kSteps * 32 + 8 * (n / 2) + 2 * tile + n % 2;
      const int pair = step * 8 + upper * 4 + lane % 4;
      float value[2] = {};
      if (o < t.out_channels) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if constexpr (kFolded) {
            value[half] = folded_weight(t, depthwise, pointwise, pair, half, o);
          } else {
            const int c = pair * 2 + half;
            if (c < t.channels) value[half] = to_float(pointwise[o * t.channels + c]);
          }
        }
      }
      to[i] = bits_of(HalfPair<T>::pack(value[0], value[1]));
    }
  }

  /// Depthwise weights as diagonal matrices (8 channels by 8), one register a tap: the second operands of nine products
  /// that are a depthwise convolution of 8 channels. Twelve registers a lane, the last three empty.
  __device__ static void load_diagonals(const SeparableTiles& t, const HalfLayout& at, const T* depthwise,
                                        std::uint32_t* to) {
    for (int i = static_cast<int>(threadIdx.x); i < at.chunks * 384; i += kSeparableThreads) {
      const int lane = i / 4 % 32, tap = i / 128 % 3 * 4 + i % 4, n = lane / 4, k = lane % 4 * 2;
      const int c = i / 384 * 8 + n;
      const float weight = tap < 9 && n / 2 * 2 == k ? to_float(depthwise[tap * t.channels + c]) : 0.0f;
      to[i] = bits_of(n == k ? HalfPair<T>::pack(weight, 0.0f) : HalfPair<T>::pack(0.0f, weight));
    }
  }

  /// Input rows of a unit to shared memory, for 8 channels at a time.
  __device__ static void fill_chunks(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                     const T* x, T* tile) {
    const int in_row = t.in_w * at.chunks;
    const T* image = x + unit.image * t.in_h * t.in_w * t.channels;
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kSeparableThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const Divided column = t.by_pixel.divide(row.remainder);
      T* to = tile + static_cast<int>(row.quotient) * at.row_stride +
              (static_cast<int>(column.quotient) + t.pad_left) * at.pixel_stride +
              static_cast<int>(column.remainder) * 8;
      const int h = unit.first_in + static_cast<int>(row.quotient);
      if (h >= 0 && h < t.in_h) {
        copy_async<16>(to, image + (static_cast<std::int64_t>(h) * in_row + row.remainder) * 8);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{};
      }
    }
    wait_for_copies();
  }

  /// Input rows of a unit to the tile and its shifted copy, by pairs of elements where rows have an even number, else
  /// one by one.
  __device__ static void fill_folded(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                     const T* x, T* tile) {
    const int elements = t.in_w * t.channels, in_piece = elements % 2 == 0 ? 2 : 1, in_row = elements / in_piece;
    const T* image = x + unit.image * t.in_h * elements;
    T* shifted = tile + at.shifted + 1;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kSeparableThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const int h = unit.first_in + static_cast<int>(row.quotient), column = static_cast<int>(row.remainder) * in_piece;
      const int to = static_cast<int>(row.quotient) * at.row_stride + t.pad_left * t.channels + column;
      const bool inside = h >= 0 && h < t.in_h;
      const T* from = image + h * elements + column;
      union {
        std::uint32_t bits;
        T v[2];
      } pair;
      pair.bits = 0;
      if (in_piece == 2) {
        if (inside) pair.bits = __ldg(reinterpret_cast<const unsigned int*>(from));
        T* whole = to % 2 == 0 ? tile : shifted;  // where the pair lies on a register's boundary
        T* split = to % 2 == 0 ? shifted : tile;
        *reinterpret_cast<std::uint32_t*>(whole + to) = pair.bits;
        split[to] = pair.v[0];
        split[to + 1] = pair.v[1];
      } else {
        if (inside) pair.v[0] = *from;
        tile[to] = pair.v[0];
        shifted[to] = pair.v[0];
      }
    }
  }

  /// The element of the tile where the patch of pixel `i` of output `position` begins.
  __device__ static int patch_at(const SeparableTiles& t, const HalfLayout& at, int position, int i) {
    const Divided p = t.by_out_w.divide(static_cast<std::uint32_t>(position));
    const int row = static_cast<int>(p.quotient) * kPool, column = static_cast<int>(p.remainder) * kPool;
    const int dy = kPool == 2 ? i / 2 : 0, dx = kPool == 2 ? i % 2 : 0;
    return (row + dy) * at.row_stride + (column + dx) * at.pixel_stride;
  }

  /// Row `row` (of 16) of tile i as an output of the unit; rows past its end repeat the last.
  __device__ static int position_of(const SeparableUnit& unit, int first, int i, int row) {
    return min(first + (kPool == 2 ? 0 : 16 * i) + row, unit.positions - 1);
  }

  __device__ static void gather_patches(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                        const T* tile, int first, PixelOperand<kMTiles, kSteps>& a) {
    const int lane = static_cast<int>(threadIdx.x % 32), pairs = row_pairs(t.channels);
    int offset[2 * kSteps];
#pragma unroll
    for (int k = 0; k < 2 * kSteps; ++k) {
      const int pair = k * 4 + lane % 4;  // past the patch's end: any element, as its weight is 0
      offset[k] = pair < 3 * pairs ? pair / pairs * at.row_stride + pair % pairs * 2 : 0;
    }
#pragma unroll
    for (int i = 0; i < kMTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int start = patch_at(t, at, position_of(unit, first, i, lane / 4 + 8 * half), i);
        const T* patch = tile + (start % 2 == 0 ? start : at.shifted + start + 1);
#pragma unroll
        for (int k = 0; k < 2 * kSteps; ++k)
          a[i][k / 2][k % 2 * 2 + half] = *reinterpret_cast<const std::uint32_t*>(patch + offset[k]);
      }
    }
  }

  /// The depthwise output of the warp's pixels, rounded to T: nine diagonal products a chunk of 8 channels, two taps at
  /// a time. Its sums lie as the next product takes its first operand.
  __device__ static void convolve_depthwise(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                            const T* tile, const uint4* diagonals, int first,
                                            PixelOperand<kMTiles, kSteps>& a) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    std::uint32_t tap_bytes[5], pixel[kMTiles];
#pragma unroll
    for (int p = 0; p < 5; ++p) {
      const int tap = min(2 * p + lane / 16, 8);
      tap_bytes[p] = static_cast<std::uint32_t>((tap / 3 * at.row_stride + tap % 3 * at.pixel_stride) * 2);
    }
#pragma unroll
    for (int i = 0; i < kMTiles; ++i)
      pixel[i] = shared_address(tile + patch_at(t, at, position_of(unit, first, i, lane % 16), i));
#pragma unroll
    for (int chunk = 0; chunk < 2 * kSteps; ++chunk) {
      if (chunk >= at.chunks) {
#pragma unroll
        for (int i = 0; i < kMTiles; ++i) a[i][chunk / 2][chunk % 2 * 2] = a[i][chunk / 2][chunk % 2 * 2 + 1] = 0;
        continue;
      }
      uint4 taps[3];
#pragma unroll
      for (int v = 0; v < 3; ++v) taps[v] = diagonals[(chunk * 3 + v) * 32 + lane];
      const std::uint32_t weights[5][2] = {{taps[0].x, taps[0].y},
                                           {taps[0].z, taps[0].w},
                                           {taps[1].x, taps[1].y},
                                           {taps[1].z, taps[1].w},
                                           {taps[2].x, 0}};
#pragma unroll
      for (int i = 0; i < kMTiles; ++i) {
        float sums[4] = {};
#pragma unroll
        for (int p = 0; p < 5; ++p) {
          std::uint32_t pixels[4];
          load_matrices(pixels, pixel[i] + tap_bytes[p] + static_cast<std::uint32_t>(chunk * 16));
          WarpMma<T>::multiply_add(sums, pixels, weights[p]);
        }
        a[i][chunk / 2][chunk % 2 * 2] = bits_of(HalfPair<T>::pack(sums[0], sums[1]));
        a[i][chunk / 2][chunk % 2 * 2 + 1] = bits_of(HalfPair<T>::pack(sums[2], sums[3]));
      }
    }
  }

  /// Eight channels of one output: ReLU, codes, 16 bytes stored.
  struct Output {
    uint4 y;
    std::uint32_t codes;
  };

  /// Without pooling: a bit an element.
  __device__ static Output finish_pixel(const float (&sums)[4][4], int half, bool relu) {
    std::uint32_t word[4], open = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      auto v = HalfPair<T>::pack(sums[j][2 * half], sums[j][2 * half + 1]);
      const auto zero = HalfPair<T>::pack(0.0f, 0.0f);
      if (relu) {
        open |= mask_greater(v, zero) & (1u << 2 * j | 1u << (2 * j + 17));
        v = max_of(v, zero);
      }
      word[j] = bits_of(v);
    }
    return {{word[0], word[1], word[2], word[3]}, (open | open >> 16) & 0xffu};
  }

  /// With pooling: the window's maximum, and four bits an element. Of a pair's code, the low half belongs to the first
  /// channel: x ^ 5 and y ^ 3 spell the winner's place as one bit of four, x set for the right column, y for the lower
  /// row.
  __device__ static Output finish_window(const float (&sums)[kMTiles][4][4], int half, bool relu) {
    std::uint32_t word[4], code[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto pixel = [&](int i) { return HalfPair<T>::pack(sums[i][j][2 * half], sums[i][j][2 * half + 1]); };
      const auto p0 = pixel(0), p1 = pixel(1), p2 = pixel(2), p3 = pixel(3), zero = HalfPair<T>::pack(0.0f, 0.0f);
      const auto above = max_of(p0, p1), below = max_of(p2, p3);
      auto best = max_of(above, below);
      const std::uint32_t down = mask_greater(below, above);
      const std::uint32_t right = (down & mask_greater(p3, p2)) | (~down & mask_greater(p1, p0));
      code[j] = (right ^ 0x50005u) & (down ^ 0x30003u) & 0xf000fu;
      if (relu) {
        code[j] &= mask_greater(best, zero);
        best = max_of(best, zero);
      }
      word[j] = bits_of(best);
    }
    const std::uint32_t left = code[0] | code[1] << 8, right = code[2] | code[3] << 8;
    const std::uint32_t even = __byte_perm(left, right, 0x5410), odd = __byte_perm(left, right, 0x7632);
    return {{word[0], word[1], word[2], word[3]}, even | odd << 4};
  }

  /// The pointwise product of 32 output channels, bias first.
  __device__ static void multiply_group(const uint4* weights, const float* bias, const PixelOperand<kMTiles, kSteps>& a,
                                        float (&sums)[kMTiles][4][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float4 low = *reinterpret_cast<const float4*>(bias + lane % 4 * 8);
    const float4 high = *reinterpret_cast<const float4*>(bias + lane % 4 * 8 + 4);
    const float start[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < kMTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[i][j][v] = start[2 * j + v % 2];
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 b0 = weights[step * 64 + lane], b1 = weights[step * 64 + 32 + lane];
      const std::uint32_t b[4][2] = {{b0.x, b0.y}, {b0.z, b0.w}, {b1.x, b1.y}, {b1.z, b1.w}};
#pragma unroll
      for (int i = 0; i < kMTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) WarpMma<T>::multiply_add(sums[i][j], a[i][step], b[j]);
      }
    }
  }

  __device__ static void store(const Output& out, std::int64_t element, T* y, std::uint8_t* codes) {
    *reinterpret_cast<uint4*>(y + element) = out.y;
    if (codes == nullptr) return;
    if constexpr (kPool == 2) {
      *reinterpret_cast<std::uint32_t*>(codes + element / 2) = out.codes;
    } else {
      codes[element / 8] = static_cast<std::uint8_t>(out.codes);
    }
  }

  /// Stores a group of 32 channels of the warp's outputs.
  __device__ static void finish(const SeparableTiles& t, const SeparableUnit& unit, int first, int group,
                                const float (&sums)[kMTiles][4][4], T* y, std::uint8_t* codes) {
    const int lane = static_cast<int>(threadIdx.x % 32), channel = group * 32 + lane % 4 * 8;
    if (channel >= t.out_channels) return;
#pragma unroll
    for (int i = 0; i < kPositions / 16; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = first + 16 * i + 8 * half + lane / 4;
        if (position >= unit.positions) continue;
        const std::int64_t element = (unit.first_position + position) * t.out_channels + channel;
        if constexpr (kPool == 2) {
          store(finish_window(sums, half, t.relu != 0), element, y, codes);
        } else {
          store(finish_pixel(sums[i], half, t.relu != 0), element, y, codes);
        }
      }
    }
  }

  __device__ static void run(const SeparableTiles& t, const HalfLayout& at, const T* x, const T* depthwise,
                             const T* pointwise, const T* bias, T* y, std::uint8_t* codes) {
    extern __shared__ __align__(128) char shared[];
    auto* weights = reinterpret_cast<std::uint32_t*>(shared);
    auto* diagonals = reinterpret_cast<std::uint32_t*>(shared + at.depthwise_at);
    auto* bias_values = reinterpret_cast<float*>(shared + at.bias_at);
    T* tile = reinterpret_cast<T*>(shared + at.tile_at);
    // The frame of padding, and what lies behind a row's end, stays zero throughout.
    for (int i = at.tile_at / 16 + static_cast<int>(threadIdx.x); i < at.bytes / 16; i += kSeparableThreads)
      reinterpret_cast<uint4*>(shared)[i] = uint4{};
    for (int i = static_cast<int>(threadIdx.x); i < at.groups * 32; i += kSeparableThreads)
      bias_values[i] = t.bias != 0 && i < t.out_channels ? to_float(bias[i]) : 0.0f;
    load_weights(t, at, depthwise, pointwise, weights);
    if constexpr (!kFolded) load_diagonals(t, at, depthwise, diagonals);
    const int warp = static_cast<int>(threadIdx.x / 32);
    for (int index = static_cast<int>(blockIdx.x); index < t.units; index += static_cast<int>(gridDim.x)) {
      const SeparableUnit unit = unit_at<kPool>(t, index);
      __syncthreads();  // everyone has done with the tile that was here
      if constexpr (kFolded) {
        fill_folded(t, at, unit, x, tile);
      } else {
        fill_chunks(t, at, unit, x, tile);
      }
      __syncthreads();
      for (int first = warp * kPositions; first < unit.positions; first += kSeparableThreads / 32 * kPositions) {
        PixelOperand<kMTiles, kSteps> a;
        if constexpr (kFolded) {
          gather_patches(t, at, unit, tile, first, a);
        } else {
          convolve_depthwise(t, at, unit, tile, reinterpret_cast<const uint4*>(diagonals), first, a);
        }
        for (int group = 0; group < at.groups; ++group) {
          float sums[kMTiles][4][4];
          multiply_group(reinterpret_cast<const uint4*>(weights) + group * kSteps * 64, bias_values + group * 32, a,
                         sums);
          finish(t, unit, first, group, sums, y, codes);
        }
      }
    }
  }
};

}  // namespace bantam::kernels::cuda
