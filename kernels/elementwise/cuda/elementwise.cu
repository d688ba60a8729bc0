// Add, scale, cast and fill on CUDA.
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/elementwise/elementwise.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kCastLanes = 4;

struct Sum {
  template <int N>
  __device__ void operator()(const float (&a)[N], float (&b)[N]) const {
    for (int k = 0; k < N; ++k) b[k] = a[k] + b[k];
  }
};

struct Times {
  float factor;
  template <int N>
  __device__ void operator()(float (&x)[N]) const {
    for (float& v : x) v = factor * v;
  }
};

__device__ inline float value_of(std::uint8_t value) { return static_cast<float>(value); }
template <class T>
__device__ inline float value_of(T value) {
  return to_float(value);
}

template <class From, class To>
__global__ void cast_kernel(std::int64_t vectors, std::int64_t count, const From* x, To* y) {
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads()) {
    const Pack<From, kCastLanes> from = reinterpret_cast<const Pack<From, kCastLanes>*>(x)[i];
    Pack<To, kCastLanes> to;
#pragma unroll
    for (int k = 0; k < kCastLanes; ++k) to.v[k] = from_float<To>(value_of(from.v[k]));
    reinterpret_cast<Pack<To, kCastLanes>*>(y)[i] = to;
  }
  for (std::int64_t i = vectors * kCastLanes + grid_thread(); i < count; i += grid_threads()) {
    y[i] = from_float<To>(value_of(x[i]));
  }
}

template <class From>
void launch_cast(const Exec& exec, std::int64_t count, const From* x, DType to, void* y) {
  dispatch_floating(to, [&](auto tag) {
    using To = typename decltype(tag)::type;
    const bool aligned = packs_aligned<From, kCastLanes>(x) && packs_aligned<To, kCastLanes>(y);
    const std::int64_t vectors = aligned ? count / kCastLanes : 0;
    cast_kernel<<<stride_blocks(vectors > 0 ? vectors : count), kMapThreads, 0, stream_of(exec)>>>(vectors, count, x,
                                                                                                   static_cast<To*>(y));
    check_launch("cast_kernel");
  });
}

template <class T>
__global__ void fill_kernel(std::int64_t vectors, std::int64_t count, T value, T* y) {
  constexpr int kLanes = kVectorLanes<T>;
  Pack<T, kLanes> pack;
#pragma unroll
  for (int k = 0; k < kLanes; ++k) pack.v[k] = value;
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads())
    reinterpret_cast<Pack<T, kLanes>*>(y)[i] = pack;
  for (std::int64_t i = vectors * kLanes + grid_thread(); i < count; i += grid_threads()) y[i] = value;
}

}  // namespace

void add(const Exec& exec, std::int64_t count, DType dtype, const void* a, const void* b, void* y) {
  launch_map(exec, count, dtype, a, b, y, Sum{});
}

void scale(const Exec& exec, std::int64_t count, DType dtype, float factor, const void* x, void* y) {
  launch_map(exec, count, dtype, x, y, Times{factor});
}

void cast(const Exec& exec, std::int64_t count, DType from, const void* x, DType to, void* y) {
  if (count <= 0) return;
  if (from == DType::uint8) return launch_cast(exec, count, static_cast<const std::uint8_t*>(x), to, y);
  dispatch_floating(
      from, [&](auto tag) { launch_cast(exec, count, static_cast<const typename decltype(tag)::type*>(x), to, y); });
}

void fill(const Exec& exec, std::int64_t count, DType dtype, float value, void* y) {
  if (count <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::int64_t vectors = packs_aligned<T, kVectorLanes<T>>(y) ? count / kVectorLanes<T> : 0;
    fill_kernel<<<stride_blocks(vectors > 0 ? vectors : count), kMapThreads, 0, stream_of(exec)>>>(
        vectors, count, from_float<T>(value), static_cast<T*>(y));
    check_launch("fill_kernel");
  });
}

}  // namespace bantam::kernels::cuda
