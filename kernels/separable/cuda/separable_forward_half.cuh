// The separable block's forward pass in half types: both convolutions on tensor cores, operands in registers.
//
// A warp computes two tiles of 16 pixels (rows of a product) by 32 output channels at a time. With pooling, tile i
// holds row i of the windows of 8 outputs, the left pixels first, so that one lane has a window's four values. The lane
// with t = lane % 4 ends up with channels 8t to 8t + 7 of the 32, by a permutation of the weights' columns, and stores
// them as 16 bytes.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/separable/cuda/separable_half_output.cuh"
#include "bantam/kernels/separable/cuda/separable_half_tile.cuh"

namespace bantam::kernels::cuda {

/// The first operand's registers of a warp: two tiles of 16 pixels by 16·kSteps values.
template <int kSteps>
using PixelOperand = std::uint32_t[2][kSteps][4];

/// kFolded: the number of input channels where both weights are multiplied first (1 to 4), or 0.
template <class T, int kFolded, int kSteps, int kPool>
struct SeparableForwardHalf {
  using Pair = HalfPair<T>;
  using Tile = SeparableHalfTile<T, kFolded, kSteps>;
  using Output = SeparableHalfOutput<T>;
  using Operand = PixelOperand<kSteps>;
  using Sums = typename Output::Sums;
  static constexpr int kPositions = kPool == 2 ? 8 : 32;  ///< outputs of a warp at a time

  /// The element of the tile where the patch of row `row` (of 16) of product tile i begins. Outputs past the unit's end
  /// repeat the last.
  __device__ static int patch_at(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit, int first,
                                 int i, int row) {
    const int position = min(kPool == 2 ? first + row % 8 : first + 16 * i + row, unit.positions - 1);
    const Divided p = t.by_out_w.divide(static_cast<std::uint32_t>(position));
    const int y = static_cast<int>(p.quotient) * kPool + (kPool == 2 ? i : 0);
    const int x = static_cast<int>(p.remainder) * kPool + (kPool == 2 ? row / 8 : 0);
    return y * at.row_stride + x * at.pixel_stride;
  }

  /// Folded: bytes from a patch's beginning to this lane's pairs of it. Past the patch's end: any, as the weight is 0.
  __device__ static void pair_offsets(const HalfLayout& at, int (&offset)[2 * kSteps]) {
#pragma unroll
    for (int k = 0; k < 2 * kSteps; ++k) {
      const int pair = k * 4 + static_cast<int>(threadIdx.x % 4);
      offset[k] =
          pair < 3 * Tile::kRowPairs ? (pair / Tile::kRowPairs * at.row_stride + pair % Tile::kRowPairs * 2) * 2 : 0;
    }
  }

  __device__ static void gather_patches(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                        const T* tile, const int (&offset)[2 * kSteps], int first, Operand& a) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int start = patch_at(t, at, unit, first, i, lane / 4 + 8 * half);
        const bool odd = kPool == 2 ? half * kFolded % 2 != 0 : start % 2 != 0;
        const char* patch = reinterpret_cast<const char*>(tile) + (start + (odd ? at.shifted + 1 : 0)) * 2;
#pragma unroll
        for (int k = 0; k < 2 * kSteps; ++k)
          a[i][k / 2][k % 2 * 2 + half] = *reinterpret_cast<const std::uint32_t*>(patch + offset[k]);
      }
    }
  }

  /// The depthwise output of the warp's pixels, rounded to T: nine diagonal products a chunk of 8 channels, two taps at
  /// a time. Its sums lie in the layout of the next product's first operand.
  __device__ static void convolve_depthwise(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                            const T* tile, const uint4* diagonals, int first, Operand& a) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    std::uint32_t tap_bytes[5], pixel[2];
#pragma unroll
    for (int p = 0; p < 5; ++p) {
      const int tap = min(2 * p + lane / 16, 8);
      tap_bytes[p] = static_cast<std::uint32_t>((tap / 3 * at.row_stride + tap % 3 * at.pixel_stride) * 2);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) pixel[i] = shared_address(tile + patch_at(t, at, unit, first, i, lane % 16));
#pragma unroll
    for (int chunk = 0; chunk < 2 * kSteps; ++chunk) {
      if (chunk >= at.chunks) {
#pragma unroll
        for (int i = 0; i < 2; ++i) a[i][chunk / 2][chunk % 2 * 2] = a[i][chunk / 2][chunk % 2 * 2 + 1] = 0;
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
      for (int i = 0; i < 2; ++i) {
        float sums[4] = {};
#pragma unroll
        for (int p = 0; p < 5; ++p) {
          std::uint32_t pixels[4];
          load_matrices(pixels, pixel[i] + tap_bytes[p] + static_cast<std::uint32_t>(chunk * 16));
          WarpMma<T>::multiply_add(sums, pixels, weights[p]);
        }
        a[i][chunk / 2][chunk % 2 * 2] = bits_of(Pair::pack(sums[0], sums[1]));
        a[i][chunk / 2][chunk % 2 * 2 + 1] = bits_of(Pair::pack(sums[2], sums[3]));
      }
    }
  }

  /// The pointwise product for 32 output channels.
  __device__ static void multiply_group(const uint4* weights, const Operand& a, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 b0 = weights[step * 64 + lane], b1 = weights[step * 64 + 32 + lane];
      const std::uint32_t b[4][2] = {{b0.x, b0.y}, {b0.z, b0.w}, {b1.x, b1.y}, {b1.z, b1.w}};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (step == 0) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0.0f;
          WarpMma<T>::multiply_add(sums[i][j], a[i][step], b[j]);
        }
      }
    }
  }

  /// Stores 32 channels of the warp's outputs, of which this lane has those from `channel` on.
  __device__ static void finish(const SeparableTiles& t, const SeparableUnit& unit, int first, int channel,
                                const T* bias_values, const Sums& sums, T* y, std::uint8_t* codes) {
    if (channel >= t.out_channels) return;
    const uint4 words = *reinterpret_cast<const uint4*>(bias_values + channel);
    const std::uint32_t bias[4] = {words.x, words.y, words.z, words.w};
    const int row = static_cast<int>(threadIdx.x % 32) / 4;
#pragma unroll
    for (int k = 0; k < kPositions / 8; ++k) {
      const int position = first + 8 * k + row;
      if (position >= unit.positions) return;
      const std::int64_t element = (unit.first_position + position) * t.out_channels + channel;
      if constexpr (kPool == 2) {
        Output::finish_window(sums, bias, t.relu != 0).template store<kPool>(element, y, codes);
      } else {
        Output::finish_pixel(sums[k / 2], k % 2, bias, t.relu != 0).template store<kPool>(element, y, codes);
      }
    }
  }

  /// All outputs of the unit in `tile`.
  __device__ static void compute(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                 const char* shared, T* y, std::uint8_t* codes) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const auto* weights = reinterpret_cast<const uint4*>(shared);
    const auto* bias = reinterpret_cast<const T*>(shared + at.bias_at);
    const auto* tile = reinterpret_cast<const T*>(shared + at.tile_at);
    int offset[2 * kSteps];
    if constexpr (kFolded > 0) pair_offsets(at, offset);
    for (int first = warp * kPositions; first < unit.positions; first += kForwardWarps * kPositions) {
      Operand a;
      if constexpr (kFolded > 0) {
        gather_patches(t, at, unit, tile, offset, first, a);
      } else {
        convolve_depthwise(t, at, unit, tile, reinterpret_cast<const uint4*>(shared + at.depthwise_at), first, a);
      }
      for (int group = 0; group < at.groups; ++group) {
        Sums sums;
        multiply_group(weights + group * kSteps * 64, a, sums);
        finish(t, unit, first, group * 32 + lane % 4 * 8, bias, sums, y, codes);
      }
    }
  }

  __device__ static void run(const SeparableTiles& t, const HalfLayout& at, const T* x, const T* depthwise,
                             const T* pointwise, const T* bias, T* y, std::uint8_t* codes) {
    extern __shared__ __align__(128) char shared[];
    T* tile = reinterpret_cast<T*>(shared + at.tile_at);
    // The frame of padding, and the slack after a row's end, stays zero throughout.
    for (int i = at.tile_at / 16 + static_cast<int>(threadIdx.x); t.framed != 0 && i < at.bytes / 16;
         i += kForwardThreads)
      reinterpret_cast<uint4*>(shared)[i] = uint4{};
    wait_for_kernel_before();
    for (int index = static_cast<int>(blockIdx.x); index < t.units; index += static_cast<int>(gridDim.x)) {
      const SeparableUnit unit = unit_at<kPool>(t, index);
      if (index + static_cast<int>(gridDim.x) >= t.units) let_next_kernel_start();  // this block's last unit
      __syncthreads();                   // everyone has done with the tile that was here
      Tile::fill(t, at, unit, x, tile);  // the first comes together with the weights
      if (index == static_cast<int>(blockIdx.x)) Tile::load_weights(t, at, depthwise, pointwise, bias, shared);
      wait_for_copies();
      __syncthreads();
      compute(t, at, unit, shared, y, codes);
    }
  }
};

}  // namespace bantam::kernels::cuda
