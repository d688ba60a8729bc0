// The moment matrix of float32, by multiply-adds (no TF32).
#pragma once

#include "bantam/kernels/separable/cuda/separable_moments.cuh"

namespace bantam::kernels::cuda {

/// Starts the load of the band's rows of x with their padding, `pitch` floats a row.
template <int kIn>
__device__ inline void start_floats(const MomentGeometry& g, const MomentBand& band, const float* x, int image,
                                    int pitch, float* to) {
  const float* from = x + static_cast<std::int64_t>(image) * g.in_h * g.in_w * kIn;
  const int row_length = g.columns * kIn, count = band.x_rows * row_length;
  if (g.columns == g.in_w && row_length % 4 == 0 && band.read_end - band.read_begin == band.x_rows) {
    from += band.x_begin * row_length;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * 4; i < count; i += kSeparableThreads * 4) {
      const Divided at = g.by_row.divide(static_cast<std::uint32_t>(i));
      copy_async<16>(to + static_cast<int>(at.quotient) * pitch + static_cast<int>(at.remainder), from + i);
    }
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSeparableThreads) {
    const Divided at = g.by_row.divide(static_cast<std::uint32_t>(i));
    const int row = band.x_begin + static_cast<int>(at.quotient), in_row = static_cast<int>(at.remainder);
    const int column = in_row / kIn - g.pad_left;
    float* place = to + static_cast<int>(at.quotient) * pitch + in_row;
    if (row >= 0 && row < g.in_h && column >= 0 && column < g.in_w) {
      copy_async<4>(place, from + (row * g.in_w + column) * kIn + in_row % kIn);
    } else {
      *place = 0;
    }
  }
}

/// float32, by multiply-adds: a lane an output channel, which gathers the patch of its window's pixel (of each position
/// without pooling).
template <int kIn>
__global__ void __launch_bounds__(kSeparableThreads)
    separable_moments_kernel_float(const MomentGeometry g, const MomentPointers<float> at, int pool) {
  constexpr int kTaps = 9 * kIn, kRows = (kTaps + 16) / 16 * 16 + 1;
  extern __shared__ __align__(128) unsigned char shared[];
  float* x = reinterpret_cast<float*>(shared);
  const MomentBand band(g, static_cast<int>(blockIdx.x));
  const MomentShare share(g.out_channels);
  const int lane = static_cast<int>(threadIdx.x % 32), channel = share.slice * 32 + lane;
  const int first_image = static_cast<int>(blockIdx.y) * g.images_each;
  const int end_image = min(g.batch, first_image + g.images_each);
  const int row_length = g.columns * kIn, pitch = row_length + 8;  // neighbours below lie in other banks
  const int first_row = band.window_begin * 2 / pool, end_row = min(g.out_h, first_row + (band.x_rows - 2) / pool);
  const int cells = max(0, end_row - first_row) * g.out_w;
  int* places = reinterpret_cast<int*>(shared + g.places_at);  // where cells lie: floats from the first of x
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < cells; i += kSeparableThreads) {
    const Divided place = g.by_out_w.divide(static_cast<std::uint32_t>(i));
    places[i] = static_cast<int>(place.quotient) * pool * pitch + static_cast<int>(place.remainder) * pool * kIn;
  }
  const int code_bits = pool == 2 ? 4 : 1, code_shift = channel * code_bits % 8;  // of the lane's channel in its byte
  wait_then_let_next_start();
  float* weights = reinterpret_cast<float*>(shared + g.weights_at);
  load_moment_weights<kIn>(g, at, weights);
  float sums[kTaps + 1] = {};
  for (int image = first_image; image < end_image; ++image) {
    __syncthreads();
    start_floats<kIn>(g, band, at.x, image, pitch, x);
    wait_for_copies();
    __syncthreads();
    if (share.part >= share.parts || channel >= g.out_channels) continue;
    const std::int64_t first = (static_cast<std::int64_t>(image) * g.out_h + first_row) * g.out_w * g.out_channels;
    const float* dy = at.dy + first + channel;
    const std::uint8_t* codes = at.codes + first * code_bits / 8 + channel * code_bits / 8;
    constexpr int kAhead = 4;
    for (int begin = share.part; begin < cells; begin += kAhead * share.parts) {
      float dz[kAhead];
      std::uint32_t code[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int cell = begin + u * share.parts;
        const bool exists = cell < cells;
        dz[u] = exists ? dy[cell * g.out_channels] : 0.0f;
        code[u] = exists && g.masked ? codes[cell * g.out_channels * code_bits / 8] : 0xffu;
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int cell = begin + u * share.parts;
        if (cell >= cells) break;
        const std::uint32_t bits = code[u] >> code_shift & ((1u << code_bits) - 1u);
        const float value = bits != 0 ? dz[u] : 0.0f;
        const float* patch = x + places[cell];
        if (pool == 2) patch += (bits >= 4 ? pitch : 0) + (bits & 0xau ? kIn : 0);
#pragma unroll
        for (int ky = 0; ky < 3; ++ky) {
#pragma unroll
          for (int i = 0; i < 3 * kIn; ++i) sums[ky * 3 * kIn + i] += value * patch[ky * pitch + i];
        }
        sums[kTaps] += value;
      }
    }
  }
  __syncthreads();
  if (share.part < share.parts) {
    float* own = x + ((share.part * share.slices + share.slice) * 32 + lane) * kRows;
#pragma unroll
    for (int row = 0; row <= kTaps; ++row) own[row] = sums[row];
  }
  write_moment_gradients<kIn, kRows>(g, at, x, weights, static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x));
}

}  // namespace bantam::kernels::cuda
