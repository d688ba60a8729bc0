// Sums over the pixels that the lanes of a warp hold, for moments of what a kernel writes.
#pragma once

namespace bantam::kernels::cuda {

/// Adds v[j] of the 8 lanes of equal lane % 4; lane 4g + t gets the sum of v[g]. Overwrites v.
__device__ inline float sum_by_pixels(float (&v)[8]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
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

}  // namespace bantam::kernels::cuda
