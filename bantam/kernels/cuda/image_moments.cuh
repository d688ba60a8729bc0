// The moments of what a thread block of an image convolution writes, tile by tile, for the batch norm behind it.
#pragma once

#include "bantam/kernels/cuda/image_tile.cuh"
#include "bantam/kernels/cuda/numeric.cuh"
#include "bantam/kernels/cuda/part_moments.h"
#include "bantam/kernels/cuda/vectorized.cuh"

namespace bantam::kernels::cuda {

/// Sums of 8 channels of a lane's pixels, as T holds them, relative to the part's first pixel: a mean that is large
/// beside the deviation costs no digits.
struct LaneSums {
  float sum[8] = {}, squares[8] = {};

  template <class T>
  __device__ void add(const Pack<T, 8>& pixel, const float* origin) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float v = to_float(pixel.v[j]) - origin[j];
      sum[j] += v;
      squares[j] = fmaf(v, v, squares[j]);
    }
  }
};

/// Adds v[j] of the 8 lanes of equal lane % 4; lane 4g + t gets the sum of v[g].
__device__ inline float sum_by_pixels(float (&v)[8]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & 4 * half) != 0;
#pragma unroll
    for (int j = 0; j < half; ++j) {
      const float mine = upper ? v[j + half] : v[j], others = upper ? v[j] : v[j + half];
      v[j] = mine + __shfl_xor_sync(0xffffffffu, others, 4 * half);
    }
  }
  return v[0];
}

/// Moments of a block's 32·kGroups channels. Lane 4g + t keeps channel 8t + g of each group of 32.
template <int kGroups>
class ImageMoments {
 public:
  /// `origins` (32·kGroups) in shared memory.
  __device__ explicit ImageMoments(float* origins) : origins_(origins) {}

  /// For one lane of each t: the part's first pixel, channels 8t to 8t + 7 of a group. A barrier must follow.
  template <class T>
  __device__ void set_origin(int group, const Pack<T, 8>& pixel) {
#pragma unroll
    for (int j = 0; j < 8; ++j) origins_[group * 32 + threadIdx.x % 4 * 8 + j] = to_float(pixel.v[j]);
  }
  __device__ const float* origin(int group) const { return origins_ + group * 32 + threadIdx.x % 4 * 8; }

  /// What a warp has of one tile. All lanes.
  __device__ void add(int group, LaneSums& lane) {
    sum_[group] += sum_by_pixels(lane.sum);
    squares_[group] += sum_by_pixels(lane.squares);
  }

  /// Adds up the block's warps, `count` pixels in all, and writes part `part`. All threads.
  __device__ void write(const PartMoments& to, int part, int first_channel, int count) {
    __shared__ float sums[2][kImageWarps][32 * kGroups];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int at = group * 32 + lane % 4 * 8 + lane / 4;
      sums[0][warp][at] = sum_[group];
      sums[1][warp][at] = squares_[group];
    }
    __syncthreads();
    for (int at = threadIdx.x; at < 32 * kGroups; at += kImageThreads) {
      float sum = 0, squares = 0;
#pragma unroll
      for (int w = 0; w < kImageWarps; ++w) {
        sum += sums[0][w][at];
        squares += sums[1][w][at];
      }
      const std::int64_t c = first_channel + at;
      if (c >= to.channels) continue;
      float* const out = to.moments + 3 * part * to.channels + c;
      const float apart = sum / static_cast<float>(count);
      out[0] = origins_[at];
      out[to.channels] = apart;
      out[2 * to.channels] = fmaxf(squares - sum * apart, 0.0f);
    }
    if (threadIdx.x == 0 && first_channel == 0) to.counts[part] = static_cast<float>(count);
  }

 private:
  float* origins_;
  float sum_[kGroups] = {}, squares_[kGroups] = {};
};

}  // namespace bantam::kernels::cuda
