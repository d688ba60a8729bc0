// Blocks that run side by side and read each other's shared memory: thread block clusters, of devices from 9.0 on.
#pragma once

#include <cstdint>

namespace bantam::kernels::cuda {

/// A barrier of all threads of a cluster: what they wrote to shared memory before it, all may read after it. A block
/// that others read from comes here once more before it ends. Only in kernels launched as clusters, from 9.0 on.
__device__ inline void synchronize_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// 16 bytes at the place of the cluster's block `rank` that `shared` is in this block.
__device__ inline float4 load_of_block(const float* shared, unsigned rank) {
  float4 v{};
#if __CUDA_ARCH__ >= 900
  const auto here = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(there)
               : "memory");
#endif
  return v;
}

}  // namespace bantam::kernels::cuda
