// Helpers of all probes: checks, random values, timing, wgmma and TMA (as kernels/common/cuda/mma).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                    \
  do {                                                                                                 \
    const cudaError_t status_ = (call);                                                                \
    if (status_ != cudaSuccess) {                                                                      \
      std::fflush(stdout);                                                                             \
      ::probe::print_timeout();                                                                        \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(2);                                                                                    \
    }                                                                                                  \
  } while (0)
#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fflush(stdout);                                                           \
      std::fprintf(stderr, "%s:%d: required: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(3);                                                                  \
    }                                                                                \
  } while (0)

namespace probe {

inline int* host_report = nullptr;  ///< a barrier that never came: flag, which, block, thread, parity
inline void print_timeout() {
  if (host_report != nullptr && host_report[0] != 0)
    std::fprintf(stderr, "TIMEOUT: barrier %d, block %d, thread %d, parity %d\n", host_report[1], host_report[2],
                 host_report[3], host_report[4]);
}

using i64 = std::int64_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// ---- host: memory, values, time ----

template <class T>
struct Array {
  T* data = nullptr;
  i64 count = 0;
  explicit Array(i64 n) : count(n) { CHECK(cudaMalloc(&data, std::max<i64>(n, 1) * sizeof(T))); }
  ~Array() { cudaFree(data); }
  Array(const Array&) = delete;
  Array(Array&& o) noexcept : data(std::exchange(o.data, nullptr)), count(o.count) {}
  std::vector<T> host() const {
    std::vector<T> v(static_cast<std::size_t>(count));
    CHECK(cudaMemcpy(v.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
  void poison(int byte = 0xff) { CHECK(cudaMemset(data, byte, count * sizeof(T))); }
  void put(const std::vector<T>& v) { CHECK(cudaMemcpy(data, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); }
};

__host__ __device__ inline u32 hash(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x;
}
/// About normal: a sum of four uniform numbers, variance 1.
__host__ __device__ inline float normal_of(u32 seed, u64 i) {
  const u32 a = hash(static_cast<u32>(i) ^ hash(seed + static_cast<u32>(i >> 32) * 0x9e3779b9u)),
            b = hash(a + 0x68bc21ebu);
  const float sum = static_cast<float>(a & 0xffff) + static_cast<float>(a >> 16) + static_cast<float>(b & 0xffff) +
                    static_cast<float>(b >> 16);
  return (sum * (1.0f / 65536.0f) - 2.0f) * 1.7320508f;
}
enum class Fill { normal, relu, shifted_relu };
template <class T>
__global__ void fill_kernel(T* to, i64 count, u32 seed, Fill kind, float scale, float mean) {
  for (i64 i = blockIdx.x * i64{blockDim.x} + threadIdx.x; i < count; i += i64{gridDim.x} * blockDim.x) {
    float v = normal_of(seed, static_cast<u64>(i));
    if (kind == Fill::relu) v = fmaxf(v, 0.0f);
    if (kind == Fill::shifted_relu) v = fmaxf(v, 0.0f) - 0.4375f;
    v = v * scale + mean;
    to[i] = static_cast<T>(v);
  }
}
template <class T>
void fill(T* to, i64 count, u32 seed, Fill kind, float scale = 1.0f, float mean = 0.0f) {
  fill_kernel<T><<<1024, 256>>>(to, count, seed, kind, scale, mean);
  CHECK(cudaGetLastError());
}
__global__ void random_bytes_kernel(u32* to, i64 count, u32 seed) {
  for (i64 i = blockIdx.x * i64{blockDim.x} + threadIdx.x; i < count; i += i64{gridDim.x} * blockDim.x)
    to[i] = hash(static_cast<u32>(i) + hash(seed));
}

/// Microseconds of one start(set): medians of `rounds` rounds over all `sets`, after one that warms up.
template <class Start>
float microseconds(int sets, int rounds, const Start& start) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> taken;
  for (int round = -1; round < rounds; ++round) {
    CHECK(cudaEventRecord(begin));
    for (int s = 0; s < sets; ++s) start(s);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (round >= 0) taken.push_back(ms * 1000.0f / static_cast<float>(sets));
  }
  CHECK(cudaGetLastError());
  std::sort(taken.begin(), taken.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return taken[taken.size() / 2];
}

/// A checksum of an array that depends on each bit and its place.
__global__ void checksum_kernel(const u32* from, i64 words, unsigned long long* to) {
  u64 sum = 0;
  for (i64 i = blockIdx.x * i64{blockDim.x} + threadIdx.x; i < words; i += i64{gridDim.x} * blockDim.x)
    sum += (u64{hash(from[i] ^ hash(static_cast<u32>(i)))} << 20) + hash(from[i] + 77u * static_cast<u32>(i));
  atomicAdd(to, static_cast<unsigned long long>(sum));  // integers: any order
}
inline u64 checksum(const void* data, i64 bytes) {
  static unsigned long long* sum = nullptr;
  if (sum == nullptr) CHECK(cudaMalloc(&sum, 8));
  CHECK(cudaMemset(sum, 0, 8));
  REQUIRE(bytes % 4 == 0);
  checksum_kernel<<<528, 256>>>(static_cast<const u32*>(data), bytes / 4, sum);
  unsigned long long value = 0;
  CHECK(cudaMemcpy(&value, sum, 8, cudaMemcpyDeviceToHost));
  return value;
}

// ---- tensor maps ----

/// Boxes of a tensor of halves whose dimensions are listed from the innermost; strides in elements, from dimension 1.
inline CUtensorMap tensor_map(const void* data, std::vector<u64> sizes, std::vector<u64> strides,
                              std::vector<u32> box) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    REQUIRE(found != nullptr && result == cudaDriverEntryPointSuccess);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  CUtensorMap map{};
  std::vector<cuuint64_t> bytes;
  for (const u64 s : strides) bytes.push_back(2 * s);
  std::vector<cuuint64_t> dims(sizes.begin(), sizes.end());
  const std::vector<cuuint32_t> every(sizes.size(), 1), boxes(box.begin(), box.end());
  const CUresult r =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, static_cast<cuuint32_t>(dims.size()), const_cast<void*>(data),
             dims.data(), bytes.data(), boxes.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", static_cast<int>(r));
  REQUIRE(r == CUDA_SUCCESS);
  return map;
}

// ---- device: barriers, tensor copies, wgmma ----

__device__ inline u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

__device__ int* timeout_report;  ///< mapped memory of the host

struct SharedBarrier {
  u32 at;
  __device__ void init(int count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
  }
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
  __device__ void arrive_expecting(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  __device__ bool done(u32 parity) const {
    u32 done = 0;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
    return done != 0;
  }
  /// Ends the kernel with an error after about two seconds; says which barrier in memory of the host. No call: that
  /// would serialise wgmma.
  __device__ __forceinline__ void wait(u32 parity, int what = 0) const {
    if (done(parity)) return;
    const long long begin = clock64();
    while (!done(parity))
      if (clock64() - begin > 4000000000ll) {
        volatile int* const report = timeout_report;
        report[1] = what, report[2] = static_cast<int>(blockIdx.x), report[3] = static_cast<int>(threadIdx.x);
        report[4] = static_cast<int>(parity);
        __threadfence_system();
        report[0] = 1;
        __threadfence_system();
        __trap();
      }
  }
};
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void load_box(u32 to, const CUtensorMap& map, int c, int b, SharedBarrier barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(c), "r"(b), "r"(barrier.at)
      : "memory");
}
/// `load_box` with the hint that its lines leave the L2 first.
__device__ inline void load_box_once(u32 to, const CUtensorMap& map, int c, int b, SharedBarrier barrier) {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], "
      "[%4], %5;" ::"r"(to),
      "l"(&map), "r"(c), "r"(b), "r"(barrier.at), "l"(policy)
      : "memory");
}
__device__ inline void load_box(u32 to, const CUtensorMap& map, int d0, int d1, int d2, int d3, SharedBarrier barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(d0), "r"(d1), "r"(d2), "r"(d3), "r"(barrier.at)
      : "memory");
}
__device__ inline void store_box(const CUtensorMap& map, int c, int b, u32 from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(c),
               "r"(b), "r"(from)
               : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void wait_for_stores_to_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <int kCount>
__device__ inline void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
__device__ inline void store_matrices(u32 row_address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ inline void load_matrices(u32 (&r)[4], u32 row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}

/// A descriptor: 128-byte swizzle; `between` bytes from a group of eight rows to the next (SBO), `leading` (LBO).
__device__ inline u64 operand(u32 address, u32 between, u32 leading = 16, u32 base_offset = 0) {
  return u64{1} << 62 | u64{base_offset & 7} << 49 | u64{(between >> 4) & 0x3fff} << 32 |
         u64{(leading >> 4) & 0x3fff} << 16 | u64{(address >> 4) & 0x3fff};
}
__device__ inline u64 operand_at(u32 address) { return operand(address, 1024); }
inline constexpr u64 kNextSixteen = 32 >> 4;

template <int kColumns, int kTransposeA = 0, int kTransposeB = 0>
struct WarpgroupMma;
#define PROBE_SUMS_64                                                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                                  \
  "%32, %33, p, 1, 1, %35, %36;"
#define PROBE_SUMS_128                                                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "           \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "          \
  "%64, %65, p, 1, 1, %67, %68;"
#define PROBE_SUMS_256                                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "               \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "     \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "     \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, "     \
  "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
  "%109, "                                                                                                             \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "      \
  "%128, %129, p, 1, 1, %131, %132;"
#define PROBE_SUMS_8_OF(i)                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define PROBE_SUMS_32_OF(i) PROBE_SUMS_8_OF(i), PROBE_SUMS_8_OF(i + 8), PROBE_SUMS_8_OF(i + 16), PROBE_SUMS_8_OF(i + 24)
#define PROBE_REGISTERS_64 PROBE_SUMS_32_OF(0)
#define PROBE_REGISTERS_128 PROBE_SUMS_32_OF(0), PROBE_SUMS_32_OF(32)
#define PROBE_REGISTERS_256 PROBE_REGISTERS_128, PROBE_SUMS_32_OF(64), PROBE_SUMS_32_OF(96)
#define PROBE_WARPGROUP_MMA(columns, add)                                                                    \
  template <int kTransposeA, int kTransposeB>                                                                \
  struct WarpgroupMma<columns, kTransposeA, kTransposeB> {                                                   \
    __device__ static void run(float (&d)[columns / 2], u64 a, u64 b, bool keep) {                           \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #add ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
                   "k16.f32.f16.f16 {" PROBE_SUMS_##columns " }"                                             \
                   : PROBE_REGISTERS_##columns                                                               \
                   : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kTransposeA), "n"(kTransposeB));       \
    }                                                                                                        \
  };
PROBE_WARPGROUP_MMA(64, 34)
PROBE_WARPGROUP_MMA(128, 66)
PROBE_WARPGROUP_MMA(256, 130)

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kOpen>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}
template <int kCount>
__device__ inline void products_done(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}

inline int start_up() {
  cudaDeviceProp p{};
  CHECK(cudaGetDeviceProperties(&p, 0));
  std::printf("device %s, %d.%d, %d multiprocessors, L2 %d MiB, shared %zu\n", p.name, p.major, p.minor,
              p.multiProcessorCount, p.l2CacheSize >> 20, p.sharedMemPerBlockOptin);
  REQUIRE(p.major == 9 && p.minor == 0);
  CHECK(cudaHostAlloc(&host_report, 64, cudaHostAllocMapped));
  std::memset(host_report, 0, 64);
  int* mapped = nullptr;
  CHECK(cudaHostGetDevicePointer(&mapped, host_report, 0));
  CHECK(cudaMemcpyToSymbol(timeout_report, &mapped, sizeof mapped));
  return p.multiProcessorCount;
}

}  // namespace probe
