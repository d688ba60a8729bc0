// Parts of persistent wgmma kernels: places in a ring of stages, turns of warpgroups, and tiles of 64 rows in shared
// memory as tensor copies write and read them.
#pragma once

#include "bantam/kernels/common/cuda/mma/warpgroup_mma.cuh"

namespace bantam::kernels::cuda {

/// A stage of the ring, and whether it is an even or an odd round.
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void next(int by, int stages) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

/// Which of two warpgroups may multiply, where they alternate.
struct Turns {
  int group;
  std::uint32_t parity = group == 0;  ///< the first warpgroup begins without waiting
};

/// The offset of columns [c, c + 8) of a row in boxes of 64 rows and 64 columns of 16-bit elements, side by side.
__device__ inline std::uint32_t place_in_boxes(int row, int c) {
  return static_cast<std::uint32_t>(c / 64 * 8192 + row * 128 + (c / 8 % 8 ^ row % 8) * 16);
}

__device__ inline float4 load_shared_float4(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}

}  // namespace bantam::kernels::cuda
