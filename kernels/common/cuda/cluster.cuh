// Blocks that run side by side and write to each other's shared memory: thread block clusters, of devices from 9.0 on.
// A block counts the bytes that reach it, and needs no barrier to see that all have arrived.
#pragma once

#include <cstdint>

namespace bantam::kernels::cuda {

/// Waits for all threads of the cluster, and lets them read what each other wrote to shared memory before. A block
/// whose shared memory others read must not end before they have.
__device__ inline void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
/// The float in the place of block `rank` that `shared` is in this block.
__device__ inline float load_of_block(unsigned rank, const float* shared) {
  float value = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there]; }"
               : "=f"(value)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank)
               : "memory");
#endif
  return value;
}

/// Bytes that the blocks of a cluster push into this block's shared memory (an mbarrier). In shared memory; only in
/// kernels launched as clusters, from 9.0 on. Used once:
/// 1. every block opens its inbox, and announces it to the others;
/// 2. a block that has seen all of them open pushes its data, to itself too;
/// 3. who reads waits until all announced bytes are there.
/// A block must not end before all that is pushed to it has arrived.
struct ClusterInbox {
  std::uint64_t barrier;

  /// All threads. Returns at once; `bytes` are what all blocks together will push.
  __device__ void open(unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address()) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }
  /// All threads, once: waits until every block of the cluster has opened its inbox.
  __device__ void wait_for_others() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }
  /// Writes `value` to the place of block `rank` that `shared` is in this block.
  __device__ void push(unsigned rank, const float* shared, float value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     of_block(rank, address_of(shared))),
                 "f"(value), "r"(of_block(rank, address()))
                 : "memory");
#endif
  }
  __device__ void push(unsigned rank, const float* shared, float2 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     of_block(rank, address_of(shared))),
                 "f"(value.x), "f"(value.y), "r"(of_block(rank, address()))
                 : "memory");
#endif
  }
  /// Waits for all bytes; then this thread may read them.
  __device__ void wait() {
#if __CUDA_ARCH__ >= 900
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
          "selp.b32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(address())
          : "memory");
    }
#endif
  }

 private:
  __device__ static std::uint32_t address_of(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  __device__ std::uint32_t address() { return address_of(&barrier); }
  __device__ static std::uint32_t of_block(unsigned rank, std::uint32_t shared) {
    std::uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
#endif
    return there;
  }
};

}  // namespace bantam::kernels::cuda
