// Eight neighbouring elements, which have a byte of a mask together, loaded, activated and stored by one thread on
// CUDA.
#pragma once

#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam::kernels::cuda {

inline constexpr int kEight = 8;

/// Eight neighbours as floats; 16 bytes at a time where addresses allow, else one by one, and 0 from `valid` on.
template <class T>
__device__ inline void load_eight(const T* from, int valid, bool aligned, float (&v)[kEight]) {
  constexpr int kLanes = kVectorLanes<T>;
  if (aligned && valid == kEight) {
#pragma unroll
    for (int i = 0; i < kEight; i += kLanes) {
      const Pack<T, kLanes> pack = *reinterpret_cast<const Pack<T, kLanes>*>(from + i);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) v[i + k] = to_float(pack.v[k]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) v[i] = i < valid ? to_float(from[i]) : 0.0f;
}

/// The first `valid` of them.
template <class T>
__device__ inline void store_eight(const float (&v)[kEight], int valid, bool aligned, T* to) {
  constexpr int kLanes = kVectorLanes<T>;
  if (aligned && valid == kEight) {
#pragma unroll
    for (int i = 0; i < kEight; i += kLanes) {
      Pack<T, kLanes> pack;
#pragma unroll
      for (int k = 0; k < kLanes; ++k) pack.v[k] = from_float<T>(v[i + k]);
      *reinterpret_cast<Pack<T, kLanes>*>(to + i) = pack;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i)
    if (i < valid) to[i] = from_float<T>(v[i]);
}

/// A piecewise f: returns the bits of f' of the first `valid` values, which become f of them.
struct MaskedValues {
  PiecewiseLinear f;

  __device__ unsigned operator()(float (&x)[kEight], int valid) const {
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < kEight; ++k) {
      bits |= (k < valid && f.rises(x[k]) ? 1u : 0u) << k;
      x[k] = f(x[k]);
    }
    return bits;
  }
};

/// How many of the eight elements from 8·`eight` on there are.
__device__ inline int valid_of(std::int64_t count, std::int64_t eight) {
  const std::int64_t left = count - eight * kEight;
  return left < kEight ? static_cast<int>(left) : kEight;
}

}  // namespace bantam::kernels::cuda
