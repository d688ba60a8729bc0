// Bulk conversion between float and the half types on the CPU, and dispatch by DType: arithmetic on the CPU is float32
// only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "bantam/base/dtype.h"
#include "bantam/base/error.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

// Marks functions that must return CUDA's bits: a fused multiply-add would round once where CUDA's kernel rounds twice.
// Clang needs no mark, as it does not fuse across statements.
#if defined(__GNUC__) && !defined(__clang__)
#define BANTAM_NO_FUSED_MULTIPLY_ADD __attribute__((optimize("fp-contract=off")))
#else
#define BANTAM_NO_FUSED_MULTIPLY_ADD
#endif

namespace bantam::kernels::cpu {

/// Calls `call(tag)` with a std::type_identity of the host type of `dtype`:
/// `dispatch_floating(dtype, [&](auto tag) { using T = typename decltype(tag)::type; ... });`
/// Throws DTypeError for all but float32, float16 and bfloat16.
template <class Call>
decltype(auto) dispatch_floating(DType dtype, Call&& call) {
  switch (dtype) {
    case DType::float32:
      return call(std::type_identity<float>{});
    case DType::float16:
      return call(std::type_identity<Half>{});
    case DType::bfloat16:
      return call(std::type_identity<BFloat16>{});
    default:
      break;
  }
  throw DTypeError("a CPU kernel was given " + std::string(to_string(dtype)) +
                   "; it supports float32, float16 and bfloat16");
}

/// `count` values to float, exactly. The ranges do not overlap.
inline void widen(const float* from, float* to, std::int64_t count) {
  if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
inline void widen(const Half* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
#endif
  for (; i < count; ++i) to[i] = from[i];
}
inline void widen(const BFloat16* from, float* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i].bits) << 16);
  }
}

/// `count` floats to the type of `to`, rounded to nearest even. The ranges do not overlap.
inline void narrow(const float* from, float* to, std::int64_t count) { widen(from, to, count); }
inline void narrow(const float* from, Half* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
#endif
  for (; i < count; ++i) to[i] = Half(from[i]);
}
inline void narrow(const float* from, BFloat16* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t f = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (f + 0x7fffu + ((f >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (f >> 16) | 0x40u;
    to[i].bits = static_cast<std::uint16_t>((f & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

/// Addresses inside an untyped array of `dtype`.
inline const void* element(const void* data, DType dtype, std::int64_t index) {
  return static_cast<const char*>(data) + index * static_cast<std::int64_t>(size_of(dtype));
}
inline void* element(void* data, DType dtype, std::int64_t index) {
  return static_cast<char*>(data) + index * static_cast<std::int64_t>(size_of(dtype));
}

/// `widen` and `narrow` for a type known at run time.
inline void widen(DType dtype, const void* from, float* to, std::int64_t count) {
  dispatch_floating(dtype, [&](auto tag) { widen(static_cast<const typename decltype(tag)::type*>(from), to, count); });
}
inline void narrow(DType dtype, const float* from, void* to, std::int64_t count) {
  dispatch_floating(dtype, [&](auto tag) { narrow(from, static_cast<typename decltype(tag)::type*>(to), count); });
}

}  // namespace bantam::kernels::cpu
