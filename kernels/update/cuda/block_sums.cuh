// Kernels of the update share these beside the rules: sums over a block in a fixed order, and running statistics.
#pragma once

#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels::cuda {

inline constexpr int kUpdateThreads = 256;  ///< of a block
inline constexpr int kWarp = 32;
inline constexpr int kUpdateWarps = kUpdateThreads / kWarp;

/// The sum over a block of kUpdateThreads, for thread 0, in a fixed order. A barrier must come before the next call.
__device__ inline double block_sum(double value) {
  __shared__ double shared[kUpdateWarps];
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kUpdateWarps; ++warp) sum += shared[warp];
  }
  return sum;
}

/// The running statistics of an update, done or skipped.
__device__ inline void publish_buffers(const UpdateBuffers& buffers, bool skip) {
  for (std::int64_t i = grid_thread(); i < buffers.elements; i += grid_threads()) {
    if (skip) {
      buffers.next[i] = buffers.current[i];
    } else {
      buffers.current[i] = buffers.next[i];
    }
  }
}

}  // namespace bantam::kernels::cuda
