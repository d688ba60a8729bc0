// The moments of the output of a thread block of an image convolution, tile by tile, for the batch norm that reads it.
#pragma once

#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/common/cuda/reduce/pixel_sums.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/conv/cuda/image_tile.cuh"

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

/// Moments of a block's 32·kGroups channels, in shared memory: registers are what the convolution has least of.
template <int kGroups>
struct ImageMoments {
  float origin[32 * kGroups];
  float sum[kImageWarps][32 * kGroups], squares[kImageWarps][32 * kGroups];  ///< relative to it, of a warp's pixels

  /// All threads; a barrier must follow.
  __device__ void clear() {
    for (int warp = 0; warp < kImageWarps; ++warp)
      for (int at = threadIdx.x; at < 32 * kGroups; at += kImageThreads) sum[warp][at] = squares[warp][at] = 0;
  }
  /// For one lane of each t = lane % 4: the part's first pixel, channels 8t to 8t + 7 of a group. A barrier must
  /// follow.
  template <class T>
  __device__ void set_origin(int group, const Pack<T, 8>& pixel) {
#pragma unroll
    for (int j = 0; j < 8; ++j) origin[group * 32 + threadIdx.x % 4 * 8 + j] = to_float(pixel.v[j]);
  }
  /// Points to the origins of a lane's 8 channels, in shared memory.
  __device__ const float* origin_of(int group) const { return origin + group * 32 + threadIdx.x % 4 * 8; }
  /// Adds what a warp has of one tile: lane 4g + t channel 8t + g. All lanes.
  __device__ void add(int group, LaneSums& lane) {
    const int warp = threadIdx.x / 32, at = group * 32 + threadIdx.x % 4 * 8 + threadIdx.x % 32 / 4;
    sum[warp][at] += sum_by_pixels(lane.sum);
    squares[warp][at] += sum_by_pixels(lane.squares);
  }

  /// Adds up the block's warps, `count` pixels in all, and writes part `part`. All threads.
  __device__ void write(const PartMoments& to, int part, int first_channel, int count) const {
    __syncthreads();
    for (int at = threadIdx.x; at < 32 * kGroups; at += kImageThreads) {
      float total = 0, total_squares = 0;
#pragma unroll
      for (int warp = 0; warp < kImageWarps; ++warp) {
        total += sum[warp][at];
        total_squares += squares[warp][at];
      }
      const std::int64_t c = first_channel + at;
      if (c >= to.channels) continue;
      float* const out = to.moments + 3 * part * to.channels + c;
      const float apart = total / static_cast<float>(count);
      out[0] = origin[at];
      out[to.channels] = apart;
      out[2 * to.channels] = fmaxf(total_squares - total * apart, 0.0f);
    }
    if (threadIdx.x == 0 && first_channel == 0) to.counts[part] = static_cast<float>(count);
  }
};

/// Replaces ImageMoments where no norm reads the output.
struct NoMoments {};

}  // namespace bantam::kernels::cuda
