// The separable block's forward pass in float32: depthwise sums into shared memory, then a product in registers.
//
// Pixels go in quads: the window of an output where pooled, else four outputs. In the product, a thread has two quads
// by eight output channels, so that pooling and the codes need no exchange.
#pragma once

#include "bantam/kernels/cuda/fused/separable_tiles.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kSeparableFloatThreads = 128;

/// Where the parts of the float32 kernel's shared memory lie, in floats.
struct FloatLayout {
  int quads;         ///< of a pass: 16, 32 or 64
  int slice;         ///< output channels of a block
  int pixel_stride;  ///< floats between pixels of a tile; odd, so that lanes at neighbouring pixels do not collide
  int depthwise_at, bias_at, middle_at, tile_at, floats;
};

/// The larger; NaN where either is.
__device__ inline float max_of(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a > b || a != a ? a : b;
#endif
}

template <int kPool>
struct SeparableForwardFloat {
  struct Weights {
    const float *depthwise, *pointwise, *bias;
  };

  /// pointwise: (in_channels, slice); depthwise: (9, in_channels).
  __device__ static void load_weights(const SeparableTiles& t, const FloatLayout& at, const Weights& from, int first_o,
                                      float* shared) {
    for (int i = static_cast<int>(threadIdx.x); i < t.channels * at.slice; i += kSeparableFloatThreads) {
      const int o = first_o + i % at.slice;
      shared[i] = o < t.out_channels ? from.pointwise[o * t.channels + i / at.slice] : 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < 9 * t.channels; i += kSeparableFloatThreads)
      shared[at.depthwise_at + i] = from.depthwise[i];
    for (int i = static_cast<int>(threadIdx.x); i < at.slice; i += kSeparableFloatThreads)
      shared[at.bias_at + i] = t.bias != 0 && first_o + i < t.out_channels ? from.bias[first_o + i] : 0.0f;
  }

  __device__ static void fill(const SeparableTiles& t, const FloatLayout& at, const SeparableUnit& unit, const float* x,
                              float* tile) {
    const int in_row = t.in_w * t.channels;
    const float* image = x + unit.image * t.in_h * in_row;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kSeparableFloatThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const Divided column = t.by_pixel.divide(row.remainder);
      const int h = unit.first_in + static_cast<int>(row.quotient);
      const bool inside = h >= 0 && h < t.in_h;
      const int pixel = static_cast<int>(row.quotient) * t.padded_w + static_cast<int>(column.quotient) + t.pad_left;
      tile[pixel * at.pixel_stride + static_cast<int>(column.remainder)] =
          inside ? __ldg(image + h * in_row + row.remainder) : 0.0f;
    }
  }

  /// Depthwise sums of the quads from `first`, to middle (in_channels, quads, 4).
  __device__ static void convolve_depthwise(const SeparableTiles& t, const FloatLayout& at, const SeparableUnit& unit,
                                            int first, float* shared) {
    const int quad = static_cast<int>(threadIdx.x) % at.quads;
    const float* tile = shared + at.tile_at;
    const int row_stride = t.padded_w * at.pixel_stride;
    int start[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = min(kPool == 2 ? first + quad : (first + quad) * 4 + i, unit.positions - 1);
      const Divided p = t.by_out_w.divide(static_cast<std::uint32_t>(position));
      const int dy = kPool == 2 ? i / 2 : 0, dx = kPool == 2 ? i % 2 : 0;
      start[i] = (static_cast<int>(p.quotient) * kPool + dy) * row_stride +
                 (static_cast<int>(p.remainder) * kPool + dx) * at.pixel_stride;
    }
    for (int c = static_cast<int>(threadIdx.x) / at.quads; c < t.channels; c += kSeparableFloatThreads / at.quads) {
      float sum[4] = {};
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        const float weight = shared[at.depthwise_at + tap * t.channels + c];
        const float* shifted = tile + tap / 3 * row_stride + tap % 3 * at.pixel_stride + c;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += shifted[start[i]] * weight;
      }
      *reinterpret_cast<float4*>(shared + at.middle_at + (c * at.quads + quad) * 4) =
          float4{sum[0], sum[1], sum[2], sum[3]};
    }
  }

  /// Sums of two quads by eight channels.
  using Sums = float[2][4][8];

  __device__ static void multiply(const SeparableTiles& t, const FloatLayout& at, const float* shared, int pair,
                                  int octet, Sums& sums) {
    const float* bias = shared + at.bias_at + octet * 8;
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i / 4][i % 4][o] = bias[o];
    }
    const float* pixels = shared + at.middle_at + pair * 4;
    const float* weights = shared + octet * 8;
    for (int c = 0; c < t.channels; ++c, pixels += at.quads * 4, weights += at.slice) {
      const float4 p0 = *reinterpret_cast<const float4*>(pixels);
      const float4 p1 = *reinterpret_cast<const float4*>(pixels + at.quads * 2);
      const float4 w0 = *reinterpret_cast<const float4*>(weights), w1 = *reinterpret_cast<const float4*>(weights + 4);
      const float p[8] = {p0.x, p0.y, p0.z, p0.w, p1.x, p1.y, p1.z, p1.w};
      const float w[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int o = 0; o < 8; ++o) sums[i / 4][i % 4][o] += p[i] * w[o];
      }
    }
  }

  __device__ static void store_eight(const float (&v)[8], float* to) {
    reinterpret_cast<float4*>(to)[0] = float4{v[0], v[1], v[2], v[3]};
    reinterpret_cast<float4*>(to)[1] = float4{v[4], v[5], v[6], v[7]};
  }

  /// The window's maxima over its four pixels, with codes.
  __device__ static void finish_window(const float (&quad)[4][8], bool relu, std::int64_t element, float* y,
                                       std::uint8_t* codes) {
    float best[8];
    std::uint32_t code = 0;
#pragma unroll
    for (int o = 0; o < 8; ++o) {
      const float above = max_of(quad[0][o], quad[1][o]), below = max_of(quad[2][o], quad[3][o]);
      best[o] = max_of(above, below);
      const std::uint32_t upper = quad[1][o] > quad[0][o] ? 2u : 1u, lower = quad[3][o] > quad[2][o] ? 8u : 4u;
      const std::uint32_t winner = below > above ? lower : upper;
      if (!relu || best[o] > 0.0f) code |= winner << 4 * o;
      if (relu) best[o] = max_of(best[o], 0.0f);
    }
    store_eight(best, y + element);
    if (codes != nullptr) *reinterpret_cast<std::uint32_t*>(codes + element / 2) = code;
  }

  __device__ static void finish_pixel(const float (&sums)[8], bool relu, std::int64_t element, float* y,
                                      std::uint8_t* codes) {
    float value[8];
    std::uint32_t open = 0;
#pragma unroll
    for (int o = 0; o < 8; ++o) {
      if (sums[o] > 0.0f) open |= 1u << o;
      value[o] = relu ? max_of(sums[o], 0.0f) : sums[o];
    }
    store_eight(value, y + element);
    if (codes != nullptr) codes[element / 8] = static_cast<std::uint8_t>(open);
  }

  __device__ static void finish(const SeparableTiles& t, const SeparableUnit& unit, int first_quad, int channel,
                                const float (&quad)[4][8], float* y, std::uint8_t* codes) {
    const bool relu = t.relu != 0;
    if constexpr (kPool == 2) {
      if (first_quad >= unit.positions) return;
      finish_window(quad, relu, (unit.first_position + first_quad) * t.out_channels + channel, y, codes);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = first_quad * 4 + i;
        if (position >= unit.positions) return;
        finish_pixel(quad[i], relu, (unit.first_position + position) * t.out_channels + channel, y, codes);
      }
    }
  }

  __device__ static void run(const SeparableTiles& t, const FloatLayout& at, const float* x, const Weights& weights,
                             float* y, std::uint8_t* codes) {
    extern __shared__ __align__(128) float values[];
    const int first_o = static_cast<int>(blockIdx.y) * at.slice, octets = min(at.slice, t.out_channels - first_o) / 8;
    for (int i = at.tile_at + static_cast<int>(threadIdx.x); i < at.floats; i += kSeparableFloatThreads)
      values[i] = 0.0f;
    load_weights(t, at, weights, first_o, values);
    for (int index = static_cast<int>(blockIdx.x); index < t.units; index += static_cast<int>(gridDim.x)) {
      const SeparableUnit unit = unit_at<kPool>(t, index);
      const int quads = kPool == 2 ? unit.positions : (unit.positions + 3) / 4;
      __syncthreads();  // everyone has done with the tile that was here
      fill(t, at, unit, x, values + at.tile_at);
      for (int first = 0; first < quads; first += at.quads) {
        __syncthreads();  // the tile is there, and everyone has done with the quads before
        convolve_depthwise(t, at, unit, first, values);
        __syncthreads();
        const int pairs = at.quads / 2;
        for (int item = static_cast<int>(threadIdx.x); item < pairs * octets; item += kSeparableFloatThreads) {
          const int pair = item % pairs, octet = item / pairs;
          if (first + pair >= quads) continue;
          Sums sums;
          multiply(t, at, values, pair, octet, sums);
          finish(t, unit, first + pair, first_o + octet * 8, sums[0], y, codes);
          if (first + pair + pairs < quads)
            finish(t, unit, first + pair + pairs, first_o + octet * 8, sums[1], y, codes);
        }
      }
    }
  }
};

}  // namespace bantam::kernels::cuda
