// Eight floats at a time on the CPU, to and from float32, float16 and bfloat16, and channel-wise maps of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "bantam/base/dtype.h"
#include "bantam/base/parallel.h"

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

// Without AVX the compiler notes that vectors are passed in memory; all functions here are inlined, so it does not
// matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace bantam::kernels::cpu {

using Float8 = float __attribute__((vector_size(32)));
using Int8 = std::int32_t __attribute__((vector_size(32)));
using UInt8 = std::uint32_t __attribute__((vector_size(32)));
using UShort8 = std::uint16_t __attribute__((vector_size(16)));

inline constexpr std::int64_t kLanes = 8;

[[gnu::always_inline]] inline Float8 load8(const float* p) {
  Float8 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

[[gnu::always_inline]] inline Float8 load8(const BFloat16* p) {
  UShort8 raw;
  std::memcpy(&raw, p, sizeof(raw));
  return reinterpret_cast<Float8>(__builtin_convertvector(raw, UInt8) << 16);
}

[[gnu::always_inline]] inline Float8 load8(const Half* p) {
#if defined(__F16C__) && defined(__AVX__)
  __m128i raw;
  std::memcpy(&raw, p, sizeof(raw));
  return reinterpret_cast<Float8>(_mm256_cvtph_ps(raw));
#else
  Float8 v;
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}

[[gnu::always_inline]] inline void store8(float* p, Float8 v) { std::memcpy(p, &v, sizeof(v)); }

[[gnu::always_inline]] inline void store8(BFloat16* p, Float8 v) {
  const UInt8 bits = reinterpret_cast<UInt8>(v);
  const UInt8 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest, ties to even
  const UInt8 quiet_nan = (bits >> 16) | 0x40u;
  const UShort8 raw = __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded, UShort8);
  std::memcpy(static_cast<void*>(p), &raw, sizeof(raw));
}

[[gnu::always_inline]] inline void store8(Half* p, Float8 v) {
#if defined(__F16C__) && defined(__AVX__)
  const __m128i raw = _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<void*>(p), &raw, sizeof(raw));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = Half(v[i]);
#endif
}

/// The ends of rows, of fewer than eight values: functions that all loops share, called once a row at most. Inlined,
/// they would be half of the kernels' code.
template <class T>
[[gnu::noinline, gnu::cold]] Float8 load_tail(const T* p, std::int64_t lanes) {
  float v[kLanes] = {};
  for (std::int64_t i = 0; i < lanes; ++i) v[i] = static_cast<float>(p[i]);
  return load8(v);
}
template <class T>
[[gnu::noinline, gnu::cold]] void store_tail(T* p, std::int64_t lanes, Float8 v) {
  float values[kLanes];
  store8(values, v);
  for (std::int64_t i = 0; i < lanes; ++i) p[i] = static_cast<T>(values[i]);
}

/// The first `lanes` of eight; the others are zero and nothing after them is read.
template <class T>
[[gnu::always_inline]] inline Float8 load_lanes(const T* p, std::int64_t lanes) {
  return lanes == kLanes ? load8(p) : load_tail(p, lanes);
}

/// Writes the first `lanes` of eight.
template <class T>
[[gnu::always_inline]] inline void store_lanes(T* p, std::int64_t lanes, Float8 v) {
  if (lanes == kLanes) return store8(p, v);
  store_tail(p, lanes, v);
}

[[gnu::always_inline]] inline Float8 broadcast8(float v) { return Float8{v, v, v, v, v, v, v, v}; }

/// Like load_lanes, but reads all eight where `readable` elements are left in the array (lanes past the first are then
/// whatever lies there): faster for the last channels of a row.
template <class T>
[[gnu::always_inline]] inline Float8 load_lanes(const T* p, std::int64_t lanes, std::int64_t readable) {
  return readable >= kLanes ? load8(p) : load_lanes(p, lanes);
}

/// Runs apply(offset, lanes, p) over a (rows, channels) array in steps of up to eight elements, in parallel over rows.
/// p[k] holds the step's lanes of per-channel value k, which `fill(c, values)` computes for channel c. Each element is
/// visited once, row after row: memory is read from its start to its end, as prefetchers like it. `apply` is copied:
/// let it hold its pointers by value.
template <int K, class Fill, class Apply>
void map_channels(std::int64_t rows, std::int64_t channels, int threads, Fill&& fill, Apply&& apply) {
  constexpr std::int64_t kChunk = 1024;  // channels whose values are kept on the stack
  if (channels <= 0) return;
  // Fewer channels than lanes: eight rows are one, in which the channels' values repeat. The last may be shorter.
  const std::int64_t width = channels < kLanes ? kLanes * channels : channels, all = rows * channels;
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / width);
  parallel_ranges((all + width - 1) / width, grain, threads, [&](std::int64_t begin, std::int64_t end) {
    const auto step = apply;  // a copy that no other thread sees: what it holds may stay in registers
    const auto end_of_row = [step](std::int64_t at, std::int64_t lanes, const Float8* p)
        __attribute__((noinline, cold)) {
      step(at, lanes, p);
    };
    float values[K * (kChunk + kLanes)] = {}, one[K];  // K groups of eight for every eight channels, and one after them
    for (std::int64_t c0 = 0; c0 < width; c0 += kChunk) {
      const std::int64_t chunk = std::min(kChunk, width - c0);
      for (std::int64_t c = 0; c < chunk; ++c) {
        fill(c0 + c < channels ? c0 + c : c % channels, one);
        for (int k = 0; k < K; ++k) values[c / kLanes * kLanes * K + k * kLanes + c % kLanes] = one[k];
      }
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t at = r * width + c0, used = std::min(chunk, all - at), whole = used / kLanes * kLanes;
        Float8 p[K];
        for (std::int64_t c = 0;; c += kLanes) {
#pragma GCC unroll 8
          for (int k = 0; k < K; ++k) p[k] = load8(values + c * K + k * kLanes);
          if (c >= whole) break;
          step(at + c, kLanes, p);
        }
        if (whole < used) end_of_row(at + whole, used - whole, p);
      }
    }
  });
}

}  // namespace bantam::kernels::cpu
