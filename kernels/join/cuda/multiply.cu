// Means and products of whole arrays on CUDA: vectors of 16 bytes in grid-stride loops.
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/join/mean.h"
#include "bantam/kernels/join/multiply.h"

namespace bantam::kernels::cuda {
namespace {

struct Product {
  template <int N>
  __device__ void operator()(const float (&a)[N], float (&b)[N]) const {
    for (int k = 0; k < N; ++k) b[k] = a[k] * b[k];
  }
};

/// work.at<N>(i) for the first `vectors` packs of N elements, then for the elements after them, one by one.
template <class T, class Work>
__global__ void each_pack_kernel(std::int64_t vectors, std::int64_t count, const __grid_constant__ Work work) {
  constexpr int kLanes = kVectorLanes<T>;
  for (std::int64_t i = grid_thread(); i < vectors; i += grid_threads()) work.template at<kLanes>(i * kLanes);
  for (std::int64_t i = vectors * kLanes + grid_thread(); i < count; i += grid_threads()) work.template at<1>(i);
}

template <class T, class Work>
void each_pack(const Exec& exec, std::int64_t count, bool aligned, const Work& work) {
  if (count <= 0) return;
  const std::int64_t vectors = aligned ? count / kVectorLanes<T> : 0;
  each_pack_kernel<T>
      <<<stride_blocks(vectors > 0 ? vectors : count), kMapThreads, 0, stream_of(exec)>>>(vectors, count, work);
  check_launch("each_pack_kernel");
}

template <class T>
struct Mean {
  MeanInputs inputs;
  float share;
  T* y;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float sum[N];
    unpack<N>(static_cast<const T*>(inputs.data[0]) + i, sum);
#pragma unroll 4
    for (int input = 1; input < inputs.count; ++input) {
      float more[N];
      unpack<N>(static_cast<const T*>(inputs.data[input]) + i, more);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += more[k];
    }
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] *= share;
    repack<N>(sum, y + i);
  }
};

template <class T>
struct Gradients {
  const T *a, *b, *dy;
  T *da, *db;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float g[N], left[N], right[N];
    unpack<N>(dy + i, g);
    if (da != nullptr) unpack<N>(b + i, right);
    if (db != nullptr) unpack<N>(a + i, left);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (da != nullptr) right[k] *= g[k];
      if (db != nullptr) left[k] *= g[k];
    }
    if (da != nullptr) repack<N>(right, da + i);
    if (db != nullptr) repack<N>(left, db + i);
  }
};

}  // namespace

void mean_of(const Exec& exec, std::int64_t elements, DType dtype, const MeanInputs& inputs, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    bool aligned = packs_aligned<T, kVectorLanes<T>>(y);
    for (int i = 0; i < inputs.count; ++i) aligned = aligned && packs_aligned<T, kVectorLanes<T>>(inputs.data[i]);
    each_pack<T>(exec, elements, aligned, Mean<T>{inputs, 1.0f / static_cast<float>(inputs.count), static_cast<T*>(y)});
  });
}

void multiply(const Exec& exec, std::int64_t count, DType dtype, const void* a, const void* b, void* y) {
  launch_map(exec, count, dtype, a, b, y, Product{});
}

void multiply_grad(const Exec& exec, std::int64_t count, DType dtype, const MultiplyInputs& inputs,
                   const MultiplyGradients& to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Gradients<T> work{static_cast<const T*>(inputs.a), static_cast<const T*>(inputs.b),
                            static_cast<const T*>(inputs.dy), static_cast<T*>(to.da), static_cast<T*>(to.db)};
    each_pack<T>(exec, count, packs_aligned<T, kVectorLanes<T>>(work.a, work.b, work.dy, work.da, work.db), work);
  });
}

}  // namespace bantam::kernels::cuda
