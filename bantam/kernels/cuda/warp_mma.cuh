// A warp's tensor-core product m16n8k16 in float16 or bfloat16 with float32 sums, and the loads that feed it.
// Fragment layouts: PTX ISA, "Matrix fragments for mma.m16n8k16". Below compute capability 8.0 these do nothing: hosts
// must not launch kernels that use them there.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define BANTAM_WARP_MMA 1
#endif

namespace bantam::kernels::cuda {

/// c += a·b. Lane 4g + t holds of A (16 x 16) rows g, g + 8 of columns 2t, 2t + 1 (a0, a1) and 2t + 8, 2t + 9 (a2, a3);
/// of B (16 x 8) rows 2t, 2t + 1 (b0) and 2t + 8, 2t + 9 (b1) of column g; of C (16 x 8) columns 2t, 2t + 1 of rows g
/// (c0, c1) and g + 8 (c2, c3).
template <class T>
__device__ inline void warp_mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

template <>
__device__ inline void warp_mma<__half>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                        std::uint32_t b1) {
#ifdef BANTAM_WARP_MMA
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <>
__device__ inline void warp_mma<__nv_bfloat16>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                               std::uint32_t b1) {
#ifdef BANTAM_WARP_MMA
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/// A generic pointer into shared memory as an address there.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Four 8 x 8 matrices of 16-bit words from shared memory: lane l gives the 16-byte aligned address of row l % 8 of
/// matrix l / 8, and receives of each columns 2t, 2t + 1 of row g.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
#ifdef BANTAM_WARP_MMA
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#endif
}

/// The same, transposed: the lane receives rows 2t, 2t + 1 of column g.
__device__ inline void load_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
#ifdef BANTAM_WARP_MMA
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#endif
}

/// Copies the first `bytes` of 16 from global to shared memory behind the thread's back; the others become zero.
__device__ inline void copy_async(std::uint32_t to, const void* from, int bytes) {
#ifdef BANTAM_WARP_MMA
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#endif
}

/// Ends a group of this thread's copies.
__device__ inline void close_copies() {
#ifdef BANTAM_WARP_MMA
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for all but the last kOpen groups of this thread's copies; a barrier must follow before other threads' are
/// read.
template <int kOpen>
__device__ inline void wait_copies() {
#ifdef BANTAM_WARP_MMA
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#endif
}

}  // namespace bantam::kernels::cuda
