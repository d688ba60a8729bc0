// Element-wise kernels over vectors of 16 bytes: grid-stride loops, with scalars where memory is not aligned and at the
// end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kMapThreads = 256;

/// kCount neighbours, loaded and stored at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T v[kCount];
};

/// A pack as the 32-bit registers it was loaded to, until it is read: as elements each would take a register, from the
/// load on.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) LoadedPack {
  std::uint32_t words[sizeof(T) * kCount / 4];

  __device__ static LoadedPack from(const T* at) { return *reinterpret_cast<const LoadedPack*>(at); }
  __device__ Pack<T, kCount> pack() const {
    LoadedPack copy = *this;
    return *reinterpret_cast<const Pack<T, kCount>*>(&copy);
  }
};

template <class T>
inline constexpr int kVectorLanes = 16 / static_cast<int>(sizeof(T));

/// Whether Pack<T, kCount> may be read and written at every one of the addresses.
template <class T, int kCount, class... Pointers>
bool packs_aligned(const Pointers*... addresses) {
  return ((reinterpret_cast<std::uintptr_t>(addresses) % sizeof(Pack<T, kCount>) == 0) && ...);
}

/// Blocks of a grid-stride loop over `items`: enough to fill any GPU a few times, and never 0.
inline unsigned stride_blocks(std::int64_t items, int threads = kMapThreads) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + threads - 1) / threads, 1, 4096));
}

__device__ inline std::int64_t grid_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

template <int kCount, class T>
__device__ inline Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}

template <int kCount, class T>
__device__ inline void unpack(const Pack<T, kCount>& pack, float (&values)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = to_float(pack.v[k]);
}

template <int kCount, class T>
__device__ inline void unpack(const T* from, float (&values)[kCount]) {
  unpack<kCount>(load_pack<kCount>(from), values);
}

template <int kCount, class T>
__device__ inline void repack(const float (&values)[kCount], T* to) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int k = 0; k < kCount; ++k) pack.v[k] = from_float<T>(values[k]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// y = f(x), f changing a small array of floats in place: `f(float (&)[N])`. The first `vectors` packs, then scalars. y
/// may be x.
template <class T, class Function>
__global__ void map_kernel(std::int64_t vectors, std::int64_t count, const T* x, T* y, Function f) {
  constexpr int kLanes = kVectorLanes<T>;
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads()) {
    float values[kLanes];
    unpack<kLanes>(x + i * kLanes, values);
    f(values);
    repack<kLanes>(values, y + i * kLanes);
  }
  for (std::int64_t i = vectors * kLanes + grid_thread(); i < count; i += grid_threads()) {
    float value[1] = {to_float(x[i])};
    f(value);
    y[i] = from_float<T>(value[0]);
  }
}

/// y = f(a, b): `f(const float (&a)[N], float (&b)[N])` writes its result to b. y may be a or b.
template <class T, class Function>
__global__ void map2_kernel(std::int64_t vectors, std::int64_t count, const T* a, const T* b, T* y, Function f) {
  constexpr int kLanes = kVectorLanes<T>;
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads()) {
    float left[kLanes], right[kLanes];
    unpack<kLanes>(a + i * kLanes, left);
    unpack<kLanes>(b + i * kLanes, right);
    f(left, right);
    repack<kLanes>(right, y + i * kLanes);
  }
  for (std::int64_t i = vectors * kLanes + grid_thread(); i < count; i += grid_threads()) {
    const float left[1] = {to_float(a[i])};
    float right[1] = {to_float(b[i])};
    f(left, right);
    y[i] = from_float<T>(right[0]);
  }
}

template <class Function>
void launch_map(const Exec& exec, std::int64_t count, DType dtype, const void* x, void* y, const Function& f) {
  if (count <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t vectors = packs_aligned<T, kVectorLanes<T>>(x, y) ? count / kVectorLanes<T> : 0;
    map_kernel<<<stride_blocks(vectors > 0 ? vectors : count), kMapThreads, 0, stream_of(exec)>>>(
        vectors, count, static_cast<const T*>(x), static_cast<T*>(y), f);
    check_launch("map_kernel");
  });
}

template <class Function>
void launch_map(const Exec& exec, std::int64_t count, DType dtype, const void* a, const void* b, void* y,
                const Function& f) {
  if (count <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t vectors = packs_aligned<T, kVectorLanes<T>>(a, b, y) ? count / kVectorLanes<T> : 0;
    map2_kernel<<<stride_blocks(vectors > 0 ? vectors : count), kMapThreads, 0, stream_of(exec)>>>(
        vectors, count, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), f);
    check_launch("map2_kernel");
  });
}

}  // namespace bantam::kernels::cuda
