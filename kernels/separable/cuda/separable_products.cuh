// The two GEMMs of a separable block's backward tile, from shared memory: on tensor cores for half types, by
// float32 multiply-adds (no TF32) for float32.
#pragma once

#include "bantam/kernels/separable/cuda/separable_tile.cuh"

namespace bantam::kernels::cuda {

/// Where the GEMMs read and write. d_mid has a border: its row 0 is conv row in_begin + pad_top - 2, its column 0 is
/// conv column pad_left - 2.
template <class T>
struct TileArrays {
  T *dz, *weights;  // (positions, dz_stride), (out channels, mid_stride)
  float* d_mid;
  int first_row, first_column;  // where conv position (dz_begin, 0) lies in d_mid
};

/// d_mid's place for position p of dz.
template <int kChannels, class Arrays>
__device__ inline float* d_mid_at(const TileGeometry& g, const Arrays& a, int p) {
  const Divided at = g.by_conv_w.divide(static_cast<std::uint32_t>(p));
  const int row = a.first_row + static_cast<int>(at.quotient), column = a.first_column + static_cast<int>(at.remainder);
  return a.d_mid + (row * (g.in_w + 2) + column) * kGradientMidStride<kChannels>;
}

/// Half types. The block's warps share the tiles of 16 rows and up to 16 columns of each product.
template <class T, int kChannels>
class TileProducts {
 public:
  /// d_mid = dz · w_pointwise at all positions of dz.
  __device__ void d_mid(const TileGeometry& g, const TileArrays<T>& a, int positions) const {
    const int lane = static_cast<int>(threadIdx.x % 32), row = lane / 4, column = lane % 4 * 2;
    const int units = (positions + 15) / 16 * kParts;
    for (int unit = static_cast<int>(threadIdx.x / 32); unit < units; unit += kWarps) {
      const int first = unit / kParts * 16, channel = unit % kParts * 16;
      float sums[kTiles][4] = {};
      std::uint32_t left = shared_address(a.dz + (first + lane % 16) * g.dz_stride + lane / 16 * 8);
      std::uint32_t right =
          shared_address(a.weights + lane % 16 * kStride + channel + (kTiles == 2 ? lane / 16 * 8 : 0));
#pragma unroll 2
      for (int o = 0; o < g.out_channels; o += 16) {
        std::uint32_t dz[4];
        load_matrices(dz, left);
        multiply(sums, dz, right);
        left += 32;
        right += 16 * kStride * 2;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int p = first + row + half * 8;
        if (p >= positions) continue;
        float* to = d_mid_at<kChannels>(g, a, p) + channel + column;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) store_two(to + n * 8, {sums[n][2 * half], sums[n][2 * half + 1]});
      }
    }
  }

  /// Adds dzᵀ · mid and, where with_bias, the sums of dz, over `positions` positions from `first` on.
  __device__ void d_pointwise(const TileGeometry& g, const TileArrays<T>& a, const T* mid, int first, int positions,
                              bool with_bias) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int units = (g.out_channels + 15) / 16 * kParts;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int unit = warp + i * kWarps;
      if (unit >= units) break;
      const int channel = unit % kParts * 16;
      std::uint32_t left = shared_address(a.dz + (first + lane % 8 + lane / 16 * 8) * g.dz_stride + unit / kParts * 16 +
                                          lane / 8 % 2 * 8);
      std::uint32_t right = shared_address(mid + lane % 16 * kStride + channel + (kTiles == 2 ? lane / 16 * 8 : 0));
      const bool sums_bias = with_bias && unit % kParts == 0;
      std::uint32_t ones[2] = {lane < 4 ? WarpMma<T>::kOnes : 0u, lane < 4 ? WarpMma<T>::kOnes : 0u};  // column 0
#pragma unroll 2
      for (int p = 0; p < positions; p += 16) {
        std::uint32_t dz[4];
        load_matrices_transposed(dz, left);
        multiply(sums_[i], dz, right);
        if (sums_bias) {
          if (positions - p < 16) keep_rows(ones, positions - p);  // mid is 0 after the last position, dz need not be
          WarpMma<T>::multiply_add(bias_[i], dz, ones);
        }
        left += 16 * g.dz_stride * 2;
        right += 16 * kStride * 2;
      }
    }
  }

  /// To (out channels, in_channels) and (out channels).
  __device__ void write(const TileGeometry& g, float* d_pointwise, float* d_bias, int group, float*) const {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int units = (g.out_channels + 15) / 16 * kParts;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int unit = warp + i * kWarps;
      if (unit >= units) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int o = unit / kParts * 16 + lane / 4 + half * 8;
        if (o >= g.out_channels) continue;
        float* to = d_pointwise + o * g.in_channels + group * kChannels + unit % kParts * 16 + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          to[n * 8] = sums_[i][n][2 * half];
          to[n * 8 + 1] = sums_[i][n][2 * half + 1];
        }
        if (group == 0 && unit % kParts == 0 && lane % 4 == 0) d_bias[o] = bias_[i][2 * half];
      }
    }
  }

 private:
  static constexpr int kWarps = kSeparableThreads / 32;
  static constexpr int kTiles = kChannels >= 16 ? 2 : 1, kParts = kChannels >= 16 ? kChannels / 16 : 1;
  static constexpr int kUnits = 8 * kParts / kWarps;  // of a warp: 128 output channels are 8 tiles of 16
  static constexpr int kStride = kMidStride<T, kChannels>;

  __device__ static void multiply(float (&sums)[kTiles][4], const std::uint32_t (&left)[4], std::uint32_t right) {
    std::uint32_t b[2 * kTiles];
    load_matrices_transposed(b, right);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const std::uint32_t columns[2] = {b[2 * n], b[2 * n + 1]};
      WarpMma<T>::multiply_add(sums[n], left, columns);
    }
  }

  /// Clears a right operand from row `rows` on.
  __device__ static void keep_rows(std::uint32_t (&b)[2], int rows) {
    const int row = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int kept = rows - row - 8 * half;
      b[half] &= kept >= 2 ? 0xffffffffu : kept == 1 ? 0xffffu : 0u;
    }
  }

  float sums_[kUnits][kTiles][4] = {};
  float bias_[kUnits][4] = {};
};

/// float32. A thread sums 4 output by 4 input channels over every kparts-th position.
template <int kChannels>
class TileProducts<float, kChannels> {
 public:
  __device__ void d_mid(const TileGeometry& g, const TileArrays<float>& a, int positions) const {
    const int units = (positions + kRows - 1) / kRows * kColumns;
    for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += kSeparableThreads) {
      const int first = unit / kColumns * kRows, channel = unit % kColumns * 4;
      float sums[kRows][4] = {};
      const float* left = a.dz + first * g.dz_stride;
      const float* right = a.weights + channel;
#pragma unroll 2
      for (int o = 0; o < g.out_channels; o += 4, left += 4, right += 4 * kStride) {
        float dz[kRows][4], w[4][4];
#pragma unroll
        for (int r = 0; r < kRows; ++r) load_four(left + r * g.dz_stride, dz[r]);
#pragma unroll
        for (int k = 0; k < 4; ++k) load_four(right + k * kStride, w[k]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[r][c] += dz[r][k] * w[k][c];
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= positions) continue;
        float* to = d_mid_at<kChannels>(g, a, first + r) + channel;
        *reinterpret_cast<float4*>(to) = {sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
      }
    }
  }

  __device__ void d_pointwise(const TileGeometry& g, const TileArrays<float>& a, const float* mid, int first,
                              int positions, bool with_bias) {
    const Share share(g);
    const float* left = a.dz + first * g.dz_stride + share.output;
    const float* right = mid + share.channel;
    if (share.part < share.parts) {
#pragma unroll 4
      for (int p = share.part; p < positions; p += share.parts) {
        float dz[4], m[4];
        load_four(left + p * g.dz_stride, dz);
        load_four(right + p * kStride, m);
#pragma unroll
        for (int o = 0; o < 4; ++o) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums_[o][c] += dz[o] * m[c];
        }
      }
    }
    if (!with_bias) return;
    const int bias_parts = kSeparableThreads / g.out_channels, thread = static_cast<int>(threadIdx.x);
    const float* column = a.dz + first * g.dz_stride + thread % g.out_channels;
    if (thread / g.out_channels >= bias_parts) return;
#pragma unroll 4
    for (int p = thread / g.out_channels; p < positions; p += bias_parts) bias_ += column[p * g.dz_stride];
  }

  /// `scratch`: 16 floats a thread of shared memory.
  __device__ void write(const TileGeometry& g, float* d_pointwise, float* d_bias, int group, float* scratch) const {
    const Share share(g);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < 16; ++i) scratch[i * kSeparableThreads + thread] = sums_[i / 4][i % 4];
    __syncthreads();
    for (int i = thread; i < 16 * share.tiles; i += kSeparableThreads) {
      const int element = i / share.tiles, tile = i % share.tiles;
      float sum = 0;
      for (int part = 0; part < share.parts; ++part) {
        sum += scratch[element * kSeparableThreads + part * share.tiles + tile];
      }
      const int o = tile / kColumns * 4 + element / 4, c = tile % kColumns * 4 + element % 4;
      d_pointwise[o * g.in_channels + group * kChannels + c] = sum;
    }
    __syncthreads();
    scratch[thread] = bias_;
    __syncthreads();
    if (group != 0 || thread >= g.out_channels) return;
    float sum = 0;
    for (int part = 0; part < kSeparableThreads / g.out_channels; ++part)
      sum += scratch[part * g.out_channels + thread];
    d_bias[thread] = sum;
  }

 private:
  static constexpr int kRows = 3, kColumns = kChannels / 4, kStride = kChannels;
  struct Share {
    int tiles, parts, part, output, channel;
    __device__ explicit Share(const TileGeometry& g) {
      tiles = g.out_channels / 4 * kColumns;
      parts = kSeparableThreads / tiles;
      part = static_cast<int>(threadIdx.x) / tiles;
      const int tile = static_cast<int>(threadIdx.x) % tiles;
      output = tile / kColumns * 4;
      channel = tile % kColumns * 4;
    }
  };
  __device__ static void load_four(const float* from, float (&to)[4]) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }

  float sums_[4][4] = {};
  float bias_ = 0;
};

}  // namespace bantam::kernels::cuda
