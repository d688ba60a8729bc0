// Element types of tensors: names, sizes, the mapping from C++ types, and float16 and bfloat16 as storage types on the
// host: bits, and exact conversions with round-to-nearest-even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

enum class DType : std::uint8_t { float32, float16, bfloat16, float64, uint8, int32, int64 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float16:
    case DType::bfloat16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

/// "float32", "float16", …
std::string_view to_string(DType dtype);

/// float16 and bfloat16: types that need float32 accumulation and, for float16, loss scaling.
constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

/// float32 to IEEE binary16, round to nearest even; overflow becomes infinity, NaN stays a quiet NaN.
constexpr std::uint16_t float_to_half_bits(float value) {
  const std::uint32_t f = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (f >> 16) & 0x8000u;
  const std::uint32_t magnitude = f & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // ≥ 65520 rounds to infinity
  if (magnitude < 0x38800000u) {                                                    // below 2^-14: subnormal or zero
    if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);           // < 2^-25 rounds to zero
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t shift = 126u - (magnitude >> 23);
    const std::uint32_t half = mantissa >> shift;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
    const std::uint32_t middle = 1u << (shift - 1u);
    const std::uint32_t up = rest > middle || (rest == middle && (half & 1u)) ? 1u : 0u;
    return static_cast<std::uint16_t>(sign | (half + up));
  }
  const std::uint32_t rebased = magnitude - 0x38000000u;
  const std::uint32_t up = 0xfffu + ((rebased >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rebased + up) >> 13));
}

/// IEEE binary16 to float32, exact.
constexpr float half_bits_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  std::uint32_t exponent = (bits >> 10) & 0x1fu;
  std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    const int lead = std::countl_zero(mantissa) - 21;  // shift that brings the leading one to bit 10
    mantissa = (mantissa << lead) & 0x3ffu;
    exponent = static_cast<std::uint32_t>(1 - lead);
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

/// float32 to bfloat16, round to nearest even; NaN stays a quiet NaN.
constexpr std::uint16_t float_to_bfloat16_bits(float value) {
  const std::uint32_t f = std::bit_cast<std::uint32_t>(value);
  if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((f >> 16) | 0x40u);
  return static_cast<std::uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
}

/// A float16 value in memory. Arithmetic happens in float.
struct Half {
  std::uint16_t bits = 0;
  constexpr Half() = default;
  constexpr explicit Half(float value) : bits(float_to_half_bits(value)) {}
  constexpr operator float() const { return half_bits_to_float(bits); }
};

/// A bfloat16 value in memory. Arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits = 0;
  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(float_to_bfloat16_bits(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

/// The DType of a C++ element type, as `value`. See dtype_of.
template <class T>
struct DTypeOf;
/// See dtype_of.
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
/// See dtype_of.
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
/// See dtype_of.
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::float16;
};
/// See dtype_of.
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
/// See dtype_of.
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
/// See dtype_of.
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
/// See dtype_of.
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};

/// The DType of a C++ element type: `dtype_of<float>`.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace bantam
BANTAM_API_END
