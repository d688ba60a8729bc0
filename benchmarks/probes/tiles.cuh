// Helpers of the wgmma kernels: rings, turns, fragments, clusters, dependent launches, checks of sampled rows.
#pragma once

#include "probe.cuh"

namespace probe {

/// A place in a ring, and whether it is an even or an odd round.
struct RingPlace {
  int stage = 0;
  u32 parity = 0;
  __device__ void next(int by, int stages) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

/// Which of the warpgroups may multiply, where they alternate.
struct Turns {
  int group;
  u32 parity = group == 0;
};

/// B as stored (k, n), n contiguous: boxes of 64 k x 64 n, 8 KiB each, the next 64 columns in the next box.
__device__ inline u64 columns_at(u32 address) { return operand(address, 1024, 8192); }
inline constexpr u64 kNextSixteenRows = 2048 >> 4;

/// The shared memory of columns [c, c + 8) of a row of 64-row boxes of 64 columns.
__device__ inline u32 place(int row, int c) { return c / 64 * 8192 + row * 128 + (c / 8 % 8 ^ row % 8) * 16; }

__device__ inline void group_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline u32 pack_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline float2 unpack_pair(u32 pair) { return __half22float2(*reinterpret_cast<const __half2*>(&pair)); }
__device__ inline u32 load_word(u32 address) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ inline uint4 load_words(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ inline void store_words(u32 address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ inline float4 load_vector(u32 address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}
/// Global memory that nothing writes while the kernel runs; not moved past barriers.
__device__ inline uint4 load_fixed(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// ---- clusters and dependent launches ----

__device__ inline u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void cluster_sync_unaligned() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ inline void arrive_at(SharedBarrier barrier, u32 rank) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [remote]; "
      "}" ::"r"(barrier.at),
      "r"(rank)
      : "memory");
}
__device__ inline float load_of_rank(u32 address, u32 rank) {
  float v;
  asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2; ld.shared::cluster.f32 %0, [remote]; }"
               : "=f"(v)
               : "r"(address), "r"(rank)
               : "memory");
  return v;
}
__device__ inline void load_box_to_all(u32 to, const CUtensorMap& map, int c, int b, SharedBarrier barrier,
                                       unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], "
      "[%4], %5;" ::"r"(to),
      "l"(&map), "r"(c), "r"(b), "r"(barrier.at), "h"(ranks)
      : "memory");
}
/// Programmatic dependent launch: the next kernel may start; the kernel before has ended.
__device__ inline void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ inline void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, int threads, int bytes, int cluster, bool dependent, cudaStream_t stream,
            A... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    ++count;
  }
  if (dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  config.attrs = attributes;
  config.numAttrs = count;
  CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...));
}

// ---- checks ----

/// Rows of a tensor of halves, gathered.
__global__ void gather_rows_kernel(const __half* from, const i64* rows, int columns, __half* to) {
  const i64 row = rows[blockIdx.x];
  for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x))
    to[i64{blockIdx.x} * columns + c] = from[row * columns + c];
}
inline std::vector<i64> sampled_rows(i64 rows, int count = 4096) {
  std::vector<i64> picked;
  for (int i = 0; i < count; ++i)
    picked.push_back(i < 128 ? i % rows : i < 256 ? rows - 1 - (i - 128) % rows : static_cast<i64>(hash(i)) % rows);
  return picked;
}
struct Difference {
  double error = 0, worst = 0;  ///< relative error of all values; the worst value's, beside 1 + |exact|
  i64 nans = 0;
};
inline Difference difference_of(const std::vector<__half>& got, const std::vector<double>& exact) {
  Difference d;
  double square = 0, all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double v = static_cast<double>(__half2float(got[i]));
    if (!(v == v)) ++d.nans;
    square += (v - exact[i]) * (v - exact[i]), all += exact[i] * exact[i];
    d.worst = std::max(d.worst, std::fabs(v - exact[i]) / (1.0 + std::fabs(exact[i])));
  }
  d.error = std::sqrt(square / all);
  return d;
}
/// Values of a that are not within `tolerance` of b's.
__global__ void apart_kernel(const __half* a, const __half* b, i64 count, float tolerance, unsigned long long* wrong) {
  unsigned long long values = 0;
  for (i64 i = blockIdx.x * i64{blockDim.x} + threadIdx.x; i < count; i += i64{gridDim.x} * blockDim.x) {
    const float l = __half2float(a[i]), r = __half2float(b[i]);
    if (!(fabsf(l - r) <= tolerance * (1.0f + fabsf(r)))) ++values;
  }
  atomicAdd(wrong, values);
}
inline unsigned long long apart(const __half* a, const __half* b, i64 count, float tolerance) {
  Array<unsigned long long> wrong(1);
  wrong.poison(0);
  apart_kernel<<<1024, 256>>>(a, b, count, tolerance, wrong.data);
  CHECK(cudaGetLastError());
  return wrong.host()[0];
}
/// Σx, Σ|x|, Σx·(y - mean), Σ|x·(y - mean)| of all rows in float64; y may be null.
__global__ void exact_columns_kernel(const __half* x, const __half* y, const float* mean, i64 rows, int columns,
                                     double* to) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= columns) return;
  double s[4] = {};
  for (i64 r = blockIdx.y; r < rows; r += gridDim.y) {
    const double v = static_cast<double>(__half2float(x[r * columns + c]));
    s[0] += v, s[1] += fabs(v);
    if (y != nullptr) {
      const double p = v * (static_cast<double>(__half2float(y[r * columns + c])) - static_cast<double>(mean[c]));
      s[2] += p, s[3] += fabs(p);
    }
  }
  for (int i = 0; i < 4; ++i) atomicAdd(to + i * columns + c, s[i]);
}
/// The largest |got - exact| / Σ|x| over columns; got: parts (parts, sums, columns), added here in float64.
inline double sums_error(const __half* x, const __half* y, const float* mean, i64 rows, int columns, int sums,
                         const std::vector<float>& got) {
  Array<double> exact(4ll * columns);
  exact.poison(0);
  exact_columns_kernel<<<dim3(static_cast<unsigned>((columns + 63) / 64), 512), 64>>>(x, y, mean, rows, columns,
                                                                                      exact.data);
  CHECK(cudaGetLastError());
  const std::vector<double> e = exact.host();
  double worst = 0;
  for (int s = 0; s < sums; ++s)
    for (int c = 0; c < columns; ++c) {
      const double d =
          std::fabs(static_cast<double>(got[static_cast<std::size_t>(s * columns + c)]) - e[2 * s * columns + c]) /
          (e[(2 * s + 1) * columns + c] + 1e-30);
      if (!(d <= worst)) worst = d;  // NaN too
    }
  return worst;
}
/// to[c] = Σ over parts of from[part][c], in order: 32 columns a block, 32 ways.
__global__ void __launch_bounds__(1024) merge_parts_kernel(const float* from, int parts, int columns, float* to) {
  __shared__ float shared[32][33];
  const int c = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x), way = static_cast<int>(threadIdx.y);
  float sum = 0;
  if (c < columns)
#pragma unroll 4
    for (int p = way; p < parts; p += 32) sum += from[i64{p} * columns + c];
  shared[way][threadIdx.x] = sum;
  __syncthreads();
  if (way != 0 || c >= columns) return;
  for (int w = 1; w < 32; ++w) sum += shared[w][threadIdx.x];
  to[c] = sum;
}
inline void merge_parts(const float* from, int parts, int columns, float* to) {
  merge_parts_kernel<<<static_cast<unsigned>((columns + 31) / 32), dim3(32, 32)>>>(from, parts, columns, to);
}

}  // namespace probe
