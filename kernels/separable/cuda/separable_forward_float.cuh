// The separable block's forward pass in float32: depthwise sums into shared memory, then a product in registers.
//
// Pixels go in quads: the window of an output where pooled, else four outputs. A warp computes both convolutions of a
// run of quads on its own. In the product, a lane has two quads by eight output channels, so that pooling and the codes
// need no exchange.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/separable/cuda/separable_tiles.cuh"

namespace bantam::kernels::cuda {

/// Where the parts of the float32 kernel's shared memory lie, in floats.
struct FloatLayout {
  int quads;         ///< of a warp at a time: a power of two from 4 on
  int slice;         ///< output channels of a block
  int side_by_side;  ///< channels of a pixel that neighbouring lanes compute: 4 or 1
  int pixel_stride;  ///< floats between pixels of a tile
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
    for (int i = static_cast<int>(threadIdx.x); i < t.channels * at.slice; i += kForwardThreads) {
      const int o = first_o + i % at.slice;
      shared[i] = o < t.out_channels ? from.pointwise[o * t.channels + i / at.slice] : 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < 9 * t.channels; i += kForwardThreads)
      shared[at.depthwise_at + i] = from.depthwise[i];
    for (int i = static_cast<int>(threadIdx.x); i < at.slice; i += kForwardThreads)
      shared[at.bias_at + i] = t.bias != 0 && first_o + i < t.out_channels ? from.bias[first_o + i] : 0.0f;
  }

  /// Input rows of a unit to shared memory, kVector floats at a time.
  template <int kVector>
  __device__ static void fill(const SeparableTiles& t, const FloatLayout& at, const SeparableUnit& unit, const float* x,
                              float* tile) {
    const int in_row = t.in_w * t.channels / kVector;
    const float* image = x + unit.image * t.in_h * t.in_w * t.channels;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kForwardThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const Divided column = t.by_pixel.divide(row.remainder);
      const int h = unit.first_in + static_cast<int>(row.quotient);
      const bool inside = h >= 0 && h < t.in_h;
      const int pixel = static_cast<int>(row.quotient) * t.padded_w + static_cast<int>(column.quotient) + t.pad_left;
      float* to = tile + pixel * at.pixel_stride + static_cast<int>(column.remainder) * kVector;
      const float* from = image + (h * in_row + static_cast<int>(row.remainder)) * kVector;
      if constexpr (kVector == 4) {
        *reinterpret_cast<float4*>(to) = inside ? __ldg(reinterpret_cast<const float4*>(from)) : float4{};
      } else {
        *to = inside ? __ldg(from) : 0.0f;
      }
    }
  }

  /// Output of pixel i of quad `quad` of the run that begins at quad `first`. Without pooling the quads' first outputs
  /// come first, then their second ones: neighbouring lanes then have neighbouring pixels.
  __device__ static int position_of(const FloatLayout& at, int first, int quad, int i) {
    return kPool == 2 ? first + quad : first * 4 + i * at.quads + quad;
  }

  /// Depthwise sums of a run of quads, to middle (in_channels, quads, 4).
  __device__ static void convolve_depthwise(const SeparableTiles& t, const FloatLayout& at, const SeparableUnit& unit,
                                            const float* shared, int first, float* middle) {
    const float* tile = shared + at.tile_at;
    const int row_stride = t.padded_w * at.pixel_stride, lane = static_cast<int>(threadIdx.x % 32);
    for (int item = lane; item < at.quads * t.channels; item += 32) {
      const int of_side = item / at.side_by_side, quad = of_side & (at.quads - 1);
      const int c = of_side / at.quads * at.side_by_side + item % at.side_by_side;
      int start[4];
#pragma unroll
      for (int i = 0; i < (kPool == 2 ? 1 : 4); ++i) {
        const int position = min(position_of(at, first, quad, i), unit.positions - 1);
        const Divided p = t.by_out_w.divide(static_cast<std::uint32_t>(position));
        start[i] = static_cast<int>(p.quotient) * kPool * row_stride +
                   static_cast<int>(p.remainder) * kPool * at.pixel_stride + c;
      }
      float weight[9], sum[4] = {};
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) weight[tap] = shared[at.depthwise_at + tap * t.channels + c];
      if constexpr (kPool == 2) {
        float window[4][4];
#pragma unroll
        for (int k = 0; k < 16; ++k)
          window[k / 4][k % 4] = tile[start[0] + k / 4 * row_stride + k % 4 * at.pixel_stride];
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[i] += window[i / 2 + tap / 3][i % 2 + tap % 3] * weight[tap];
        }
      } else {
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
          const float* shifted = tile + tap / 3 * row_stride + tap % 3 * at.pixel_stride;
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[i] += shifted[start[i]] * weight[tap];
        }
      }
      *reinterpret_cast<float4*>(middle + (c * at.quads + quad) * 4) = float4{sum[0], sum[1], sum[2], sum[3]};
    }
  }

  /// Sums of two quads by eight channels.
  using Sums = float[2][4][8];

  __device__ static void multiply(const SeparableTiles& t, const FloatLayout& at, const float* shared,
                                  const float* middle, int pair, int octet, Sums& sums) {
    const float* bias = shared + at.bias_at + octet * 8;
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i / 4][i % 4][o] = bias[o];
    }
    const float* pixels = middle + pair * 4;
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

  /// Stores eight channels, from `channel` on, of quad `quad` of a run.
  __device__ static void finish(const SeparableTiles& t, const FloatLayout& at, const SeparableUnit& unit, int first,
                                int quad, int channel, const float (&sums)[4][8], float* y, std::uint8_t* codes) {
    const bool relu = t.relu != 0;
#pragma unroll
    for (int i = 0; i < (kPool == 2 ? 1 : 4); ++i) {
      const int position = position_of(at, first, quad, i);
      if (position >= unit.positions) return;
      const std::int64_t element = (unit.first_position + position) * t.out_channels + channel;
      if constexpr (kPool == 2) {
        finish_window(sums, relu, element, y, codes);
      } else {
        finish_pixel(sums[i], relu, element, y, codes);
      }
    }
  }

  /// All outputs of the unit in the tile.
  __device__ static void compute(const SeparableTiles& t, const FloatLayout& at, const SeparableUnit& unit, int first_o,
                                 float* shared, float* y, std::uint8_t* codes) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int octets = min(at.slice, t.out_channels - first_o) / 8, pairs = at.quads / 2;
    const int quads = kPool == 2 ? unit.positions : (unit.positions + 3) / 4;
    float* middle = shared + at.middle_at + warp * t.channels * at.quads * 4;
    for (int first = warp * at.quads; first < quads; first += kForwardWarps * at.quads) {
      convolve_depthwise(t, at, unit, shared, first, middle);
      __syncwarp();
      for (int item = lane; item < pairs * octets; item += 32) {
        const int pair = item & (pairs - 1), octet = item / pairs;
        Sums sums;
        multiply(t, at, shared, middle, pair, octet, sums);
        finish(t, at, unit, first, pair, first_o + octet * 8, sums[0], y, codes);
        finish(t, at, unit, first, pair + pairs, first_o + octet * 8, sums[1], y, codes);
      }
      __syncwarp();  // the run's sums are read before the next run's come
    }
  }

  __device__ static void run(const SeparableTiles& t, const FloatLayout& at, const float* x, const Weights& weights,
                             float* y, std::uint8_t* codes) {
    extern __shared__ __align__(128) float values[];
    const int first_o = static_cast<int>(blockIdx.y) * at.slice;
    for (int i = at.tile_at + static_cast<int>(threadIdx.x); t.framed != 0 && i < at.floats; i += kForwardThreads)
      values[i] = 0.0f;
    wait_for_kernel_before();
    for (int index = static_cast<int>(blockIdx.x); index < t.units; index += static_cast<int>(gridDim.x)) {
      const SeparableUnit unit = unit_at<kPool>(t, index);
      if (index + static_cast<int>(gridDim.x) >= t.units) let_next_kernel_start();  // this block's last unit
      __syncthreads();  // everyone has done with the tile that was here
      if (at.side_by_side == 4) {
        fill<4>(t, at, unit, x, values + at.tile_at);
      } else {
        fill<1>(t, at, unit, x, values + at.tile_at);
      }
      if (index == static_cast<int>(blockIdx.x)) load_weights(t, at, weights, first_o, values);
      __syncthreads();
      compute(t, at, unit, first_o, values, y, codes);
    }
  }
};

}  // namespace bantam::kernels::cuda
