// Element types of tensors: names, sizes, and the mapping from C++ types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bantam/base/half.h"

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

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};

/// The DType of a C++ element type: `dtype_of<float>`.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace bantam
