// Two neighbouring elements of a half type in one register: packing, maximum and comparison of both at once.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace bantam::kernels::cuda {

/// Operations on a pair stored as 32 bits, the first element in the low half.
template <class T>
struct HalfPair;

template <>
struct HalfPair<__half> {
  using Vector = __half2;
  __device__ static Vector pack(float low, float high) { return __floats2half2_rn(low, high); }
  /// relu of both, in the instruction that rounds; NaN stays NaN. Needs compute capability 8.0.
  __device__ static Vector pack_relu(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return of(pair);
  }
  __device__ static float2 unpack(Vector v) { return __half22float2(v); }
  __device__ static Vector of(std::uint32_t bits) { return *reinterpret_cast<const Vector*>(&bits); }
  __device__ static Vector add(Vector a, Vector b) { return __hadd2_rn(a, b); }
};

template <>
struct HalfPair<__nv_bfloat16> {
  using Vector = __nv_bfloat162;
  __device__ static Vector pack(float low, float high) { return __floats2bfloat162_rn(low, high); }
  /// relu of both, in the instruction that rounds; NaN stays NaN. Needs compute capability 8.0.
  __device__ static Vector pack_relu(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return of(pair);
  }
  __device__ static float2 unpack(Vector v) { return __bfloat1622float2(v); }
  __device__ static Vector of(std::uint32_t bits) { return *reinterpret_cast<const Vector*>(&bits); }
  __device__ static Vector add(Vector a, Vector b) { return __hadd2_rn(a, b); }
};

template <class Vector>
__device__ inline std::uint32_t bits_of(Vector pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Both elements as floats.
__device__ inline float2 floats_of(__half2 pair) { return __half22float2(pair); }
__device__ inline float2 floats_of(__nv_bfloat162 pair) {
  return {__uint_as_float(bits_of(pair) << 16), __uint_as_float(bits_of(pair) & 0xffff0000u)};
}

/// The larger of each; NaN where either is.
template <class Vector>
__device__ inline Vector max_of(Vector a, Vector b) {
  return __hmax2_nan(a, b);
}

/// All bits of an element set where a > b.
template <class Vector>
__device__ inline std::uint32_t mask_greater(Vector a, Vector b) {
  return __hgt2_mask(a, b);
}

/// All bits of an element set where a is larger than b, or the first NaN: what a maximum in order accepts.
template <class Vector>
__device__ inline std::uint32_t mask_exceeds(Vector a, Vector b) {
  return __hgtu2_mask(a, b) & __heq2_mask(b, b);
}

/// All bits of a 16-bit element set where it is that of `b`: numbers below 1,024, which are subnormal as float16.
__device__ inline std::uint32_t mask_equal_numbers(std::uint32_t a, std::uint32_t b) {
  return __heq2_mask(HalfPair<__half>::of(a), HalfPair<__half>::of(b));
}

/// Bits of `a` where the mask is set, of `b` elsewhere.
__device__ inline std::uint32_t choose(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return (a & mask) | (b & ~mask);
}

}  // namespace bantam::kernels::cuda
