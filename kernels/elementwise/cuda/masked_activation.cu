// Masked activations on CUDA: a thread does eight elements and their byte of the mask.
#include "bantam/kernels/elementwise/cuda/eights.cuh"
#include "bantam/kernels/elementwise/masked_activation.h"

namespace bantam::kernels::cuda {
namespace {

template <class T>
__global__ void masked_activation_forward_kernel(MaskedValues f, std::int64_t count, bool aligned, const T* a,
                                                 const T* b, T* y, std::uint8_t* mask) {
  for (std::int64_t i = grid_thread(); i * kEight < count; i += grid_threads()) {
    const int valid = valid_of(count, i);
    float x[kEight];
    load_eight(a + i * kEight, valid, aligned, x);
    if (b != nullptr) {
      float other[kEight];
      load_eight(b + i * kEight, valid, aligned, other);
#pragma unroll
      for (int k = 0; k < kEight; ++k) x[k] += other[k];
    }
    const unsigned bits = f(x, valid);
    if (mask != nullptr) mask[i] = static_cast<std::uint8_t>(bits);
    store_eight(x, valid, aligned, y + i * kEight);
  }
}

template <class T>
__global__ void masked_activation_grad_kernel(float below, std::int64_t count, bool aligned, const std::uint8_t* mask,
                                              const T* dy, T* dx) {
  for (std::int64_t i = grid_thread(); i * kEight < count; i += grid_threads()) {
    const int valid = valid_of(count, i);
    const unsigned bits = mask[i];
    float g[kEight];
    load_eight(dy + i * kEight, valid, aligned, g);
#pragma unroll
    for (int k = 0; k < kEight; ++k) g[k] *= (bits >> k) & 1u ? 1.0f : below;
    store_eight(g, valid, aligned, dx + i * kEight);
  }
}

}  // namespace

void masked_activation_forward(const Exec& exec, ActivationFunction f, std::int64_t count, DType dtype, const void* a,
                               const void* b, void* y, std::uint8_t* mask) {
  if (count <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool aligned = packs_aligned<T, kVectorLanes<T>>(a, b, y);  // a null b is aligned
    masked_activation_forward_kernel<<<stride_blocks((count + kEight - 1) / kEight), kMapThreads, 0, stream_of(exec)>>>(
        MaskedValues{PiecewiseLinear::of(f)}, count, aligned, static_cast<const T*>(a), static_cast<const T*>(b),
        static_cast<T*>(y), mask);
    check_launch("masked_activation_forward_kernel");
  });
}

void masked_activation_grad(const Exec& exec, ActivationFunction f, std::int64_t count, DType dtype,
                            const std::uint8_t* mask, const void* dy, void* dx) {
  if (count <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool aligned = packs_aligned<T, kVectorLanes<T>>(dy, dx);
    masked_activation_grad_kernel<<<stride_blocks((count + kEight - 1) / kEight), kMapThreads, 0, stream_of(exec)>>>(
        PiecewiseLinear::of(f).below, count, aligned, mask, static_cast<const T*>(dy), static_cast<T*>(dx));
    check_launch("masked_activation_grad_kernel");
  });
}

}  // namespace bantam::kernels::cuda
