// Warp-wide matrix products (mma.sync), matrix loads (ldmatrix) and asynchronous copies, for float16 and bfloat16, with
// paths for devices that lack an instruction. Fragment layouts as in the PTX manual ("Matrix Fragments for
// mma.m16n8k16").
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/numeric.cuh"

namespace bantam::kernels::cuda {

__device__ inline std::uint32_t shared_address(const void* in_shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(in_shared));
}

/// A (16, 16) by rows, B (16, 8), sums (16, 8). Lane 4g + t holds rows g and g + 8 of A and of the sums, column g of B.
template <class T>
struct WarpMma;

/// The same by warp shuffles, for types that the device's tensor cores do not support (bfloat16 before sm_80). Slow.
template <class T>
__device__ inline void multiply_by_shuffles(float (&sums)[4], const std::uint32_t (&a)[4],
                                            const std::uint32_t (&b)[2]) {
  union Two {
    std::uint32_t bits;
    T v[2];
  };
  const int lane = static_cast<int>(threadIdx.x % 32), row = lane / 4, column = lane % 4 * 2;
  for (int k = 0; k < 8; ++k) {  // pairs of k
    const int upper = k / 4;
    Two left[2], right[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t low_k = __shfl_sync(0xffffffffu, a[half], row * 4 + k % 4);
      const std::uint32_t high_k = __shfl_sync(0xffffffffu, a[half + 2], row * 4 + k % 4);
      left[half].bits = upper ? high_k : low_k;
      const std::uint32_t low_b = __shfl_sync(0xffffffffu, b[0], (column + half) * 4 + k % 4);
      const std::uint32_t high_b = __shfl_sync(0xffffffffu, b[1], (column + half) * 4 + k % 4);
      right[half].bits = upper ? high_b : low_b;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) sums[i] += to_float(left[i / 2].v[e]) * to_float(right[i % 2].v[e]);
    }
  }
}

template <>
struct WarpMma<__half> {
  static constexpr std::uint32_t kOnes = 0x3c003c00u;  ///< the number 1, twice
  __device__ static void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
#endif
  }
};

template <>
struct WarpMma<__nv_bfloat16> {
  static constexpr std::uint32_t kOnes = 0x3f803f80u;
  __device__ static void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    multiply_by_shuffles<__nv_bfloat16>(c, a, b);
#endif
  }
};

/// Four 8x8 matrices of 16-bit elements from shared memory; lane i passes the address (16-byte aligned) of row i % 8 of
/// matrix i / 8.
__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}
/// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}
/// Two matrices, transposed; lanes 0 to 15 pass the addresses.
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[2], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(row_address)
               : "memory");
}

/// kBytes (4 or 16) from global to shared memory, both aligned to kBytes; complete after wait_for_copies.
template <int kBytes>
__device__ inline void copy_async(void* to_shared, const void* from_global) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to_shared)), "l"(from_global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to_shared)), "l"(from_global),
                 "n"(kBytes)
                 : "memory");
  }
#else
  if constexpr (kBytes == 16) {
    *static_cast<uint4*>(to_shared) = *static_cast<const uint4*>(from_global);
  } else {
    *static_cast<std::uint32_t*>(to_shared) = *static_cast<const std::uint32_t*>(from_global);
  }
#endif
}
/// The same for 16 bytes, of which only the first `bytes` are read; the others become zero. Not below sm_80: hosts must
/// not launch kernels that use it there.
__device__ inline void copy_async_part(std::uint32_t to, const void* from_global, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from_global), "r"(bytes) : "memory");
#endif
}
/// 16 bytes, or zeros where not `wanted` (then `from_global` is not read, but must be an address).
__device__ inline void copy_async_or_zero(void* to_shared, const void* from_global, bool wanted) {
#if __CUDA_ARCH__ >= 800
  copy_async_part(shared_address(to_shared), from_global, wanted ? 16 : 0);
#else
  *static_cast<uint4*>(to_shared) = wanted ? *static_cast<const uint4*>(from_global) : make_uint4(0, 0, 0, 0);
#endif
}
/// Ends a group of this thread's copies.
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for all but the last kOpen groups of this thread's copies; other threads see them after a barrier.
template <int kOpen>
__device__ inline void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#endif
}
/// Waits for all copies of this thread; other threads see them after a barrier.
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// The 1-bits of `pair` (bit 0: low half, bit 1: high half) as a mask of two 16-bit elements.
__device__ inline std::uint32_t half_mask(std::uint32_t pair) { return ((pair | pair << 15) & 0x10001u) * 0xffffu; }

}  // namespace bantam::kernels::cuda
