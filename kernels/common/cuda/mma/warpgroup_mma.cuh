// Warpgroup matrix multiply-accumulate (wgmma), tensor copies (TMA), and the barriers between the two: instructions of
// compute capability 9.0 alone, so only for files compiled for 90a. Layouts as in the PTX manual ("Asynchronous
// Warpgroup Level Matrix Multiply-Accumulate", "Tensors").
#pragma once

#include <cstdint>

#include <cuda.h>

#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"

namespace bantam::kernels::cuda {

/// An mbarrier in shared memory, by its address. It completes a phase when `count` threads have arrived and all bytes
/// announced have come.
struct SharedBarrier {
  std::uint32_t at;

  __device__ void init(int count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
  }
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
  __device__ void arrive_expecting(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  /// Until the phase of this parity is complete; that before the first counts as one of parity 1.
  __device__ void wait(std::uint32_t parity) const {
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(at), "r"(parity)
                   : "memory");
  }
};
/// Makes barriers that this thread has set up visible to tensor copies.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Starts the copy of a tensor's box, whose first element is (c, b, a), to shared memory; its bytes arrive at
/// `barrier`.
__device__ inline void load_box(std::uint32_t to, const CUtensorMap& tensor, int c, int b, int a,
                                SharedBarrier barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(&tensor), "r"(c), "r"(b), "r"(a), "r"(barrier.at)
      : "memory");
}
/// The same of a matrix.
__device__ inline void load_box(std::uint32_t to, const CUtensorMap& tensor, int c, int b, SharedBarrier barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&tensor), "r"(c), "r"(b), "r"(barrier.at)
      : "memory");
}
/// Starts the copy of a box from shared memory; what lies outside the tensor is skipped.
__device__ inline void store_box(const CUtensorMap& tensor, int c, int b, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&tensor), "r"(c),
               "r"(b), "r"(from)
               : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the memory that this thread's stores read, but for the last kOpen groups, may be written again.
template <int kOpen = 0>
__device__ inline void wait_for_stores_to_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kOpen) : "memory");
}
/// Makes this thread's writes to shared memory visible to tensor copies that begin after a barrier.
__device__ inline void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Waits for the other threads of a warpgroup; each uses a barrier of its own, from 1 on.
__device__ inline void sync_warpgroup(int barrier) { asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory"); }

/// A warpgroup releases registers beyond kCount a thread, or waits for as many. Multiples of 8.
template <int kCount>
__device__ inline void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Four 8x8 matrices of 16-bit elements to shared memory; lane i passes the address of row i % 8 of matrix i / 8.
__device__ inline void store_matrices(std::uint32_t row_address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

/// How wgmma finds an operand of rows of 64 16-bit elements, in the order in which a tensor copy with a swizzle of 128
/// bytes writes them: groups of eight rows, 1,024 bytes each, on a multiple of that.
__device__ inline std::uint64_t operand_at(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kBetweenGroups = std::uint64_t{1024 >> 4} << 32,
                          kUnused = std::uint64_t{1} << 16;
  return kSwizzle128 | kBetweenGroups | kUnused | (address >> 4 & 0x3fff);
}
/// The same operand, 16 elements of each row on.
inline constexpr std::uint64_t kNextSixteen = 32 >> 4;

/// How wgmma finds an operand whose rows are its depth, 64 columns each: B as stored (k, n), A as stored (k, m). Boxes
/// of 64 rows, 8 KiB each, the next 64 columns in the next box.
__device__ inline std::uint64_t columns_at(std::uint32_t address) {
  constexpr std::uint64_t kBoxBytes = 8192;
  return (operand_at(address) & ~(std::uint64_t{0x3fff} << 16)) | (kBoxBytes >> 4) << 16;
}
/// The same operand, 16 rows on.
inline constexpr std::uint64_t kNextSixteenRows = 2048 >> 4;

/// sums (64, kColumns) = or += A (64, 16) · B (kColumns, 16)ᵀ, of a warpgroup. Lane 4g + t of warp w holds of rows 16w
/// + g and 16w + g + 8 columns 8j + 2t and 8j + 2t + 1, in sums[4j] to sums[4j + 3]. Runs on after the call.
/// kTransposeA, kTransposeB: 1 where the operand is that of `columns_at`.
template <class T, int kColumns, int kTransposeA = 0, int kTransposeB = 0>
struct WarpgroupMma;

// The operands' numbers, and their registers.
#define BANTAM_SUMS_64                                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                                  \
  "%32, %33, p, 1, 1, %35, %36;"
#define BANTAM_SUMS_128                                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "           \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "          \
  "%64, %65, p, 1, 1, %67, %68;"
#define BANTAM_SUMS_256                                                                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "               \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "     \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "     \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, "     \
  "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
  "%109, "                                                                                                             \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "      \
  "%128, %129, p, 1, 1, %131, %132;"
#define BANTAM_SUMS_8_OF(i)                                                                                   \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define BANTAM_SUMS_32_OF(i) \
  BANTAM_SUMS_8_OF(i), BANTAM_SUMS_8_OF(i + 8), BANTAM_SUMS_8_OF(i + 16), BANTAM_SUMS_8_OF(i + 24)
#define BANTAM_REGISTERS_64 BANTAM_SUMS_32_OF(0)
#define BANTAM_REGISTERS_128 BANTAM_SUMS_32_OF(0), BANTAM_SUMS_32_OF(32)
#define BANTAM_REGISTERS_256 BANTAM_REGISTERS_128, BANTAM_SUMS_32_OF(64), BANTAM_SUMS_32_OF(96)

#define BANTAM_WARPGROUP_MMA(T, type, columns, add)                                                          \
  template <int kTransposeA, int kTransposeB>                                                                \
  struct WarpgroupMma<T, columns, kTransposeA, kTransposeB> {                                                \
    using Sums = float[columns / 2];                                                                         \
    __device__ static void run(Sums& d, std::uint64_t a, std::uint64_t b, bool keep) {                       \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #add ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
                   "k16.f32." type "." type " {" BANTAM_SUMS_##columns " }"                                  \
                   : BANTAM_REGISTERS_##columns                                                              \
                   : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kTransposeA), "n"(kTransposeB));       \
    }                                                                                                        \
  };
BANTAM_WARPGROUP_MMA(__half, "f16", 64, 34)
BANTAM_WARPGROUP_MMA(__half, "f16", 128, 66)
BANTAM_WARPGROUP_MMA(__half, "f16", 256, 130)
BANTAM_WARPGROUP_MMA(__nv_bfloat16, "bf16", 64, 34)
BANTAM_WARPGROUP_MMA(__nv_bfloat16, "bf16", 128, 66)
BANTAM_WARPGROUP_MMA(__nv_bfloat16, "bf16", 256, 130)
#undef BANTAM_WARPGROUP_MMA
#undef BANTAM_REGISTERS_256
#undef BANTAM_REGISTERS_128
#undef BANTAM_REGISTERS_64
#undef BANTAM_SUMS_32_OF
#undef BANTAM_SUMS_8_OF
#undef BANTAM_SUMS_256
#undef BANTAM_SUMS_128
#undef BANTAM_SUMS_64

/// Before a warpgroup's first wgmma that reads or writes these registers.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of wgmma instructions.
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits for all but the last kOpen groups.
template <int kOpen>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}
/// Keeps the compiler from reading sums before the preceding wait.
template <int kCount>
__device__ inline void products_done(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}

}  // namespace bantam::kernels::cuda
