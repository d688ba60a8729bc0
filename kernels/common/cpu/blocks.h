// Element-wise loops over any floating type: float32 in place, half types widened a block at a time on the stack.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/exec.h"

namespace bantam::kernels::cpu {

inline constexpr std::int64_t kElementsOfPart = 32768;
inline constexpr std::int64_t kElementsOfBlock = 512;

/// Elements [begin, end) of y = block(x): block(const float* x, float* y, count). y may be x.
template <class T, class Block>
void map_range(std::int64_t begin, std::int64_t end, const T* x, T* y, Block&& block) {
  if constexpr (std::is_same_v<T, float>) {
    block(x + begin, y + begin, end - begin);
  } else {
    float values[kElementsOfBlock];
    for (std::int64_t i = begin; i < end; i += kElementsOfBlock) {
      const std::int64_t n = std::min(kElementsOfBlock, end - i);
      widen(x + i, values, n);
      block(values, values, n);
      narrow(values, y + i, n);
    }
  }
}

/// Elements [begin, end) of y = block(a, b): block(const float* a, const float* b, float* y, count). y may be a or b.
template <class T, class Block>
void map_range(std::int64_t begin, std::int64_t end, const T* a, const T* b, T* y, Block&& block) {
  if constexpr (std::is_same_v<T, float>) {
    block(a + begin, b + begin, y + begin, end - begin);
  } else {
    float left[kElementsOfBlock], right[kElementsOfBlock];
    for (std::int64_t i = begin; i < end; i += kElementsOfBlock) {
      const std::int64_t n = std::min(kElementsOfBlock, end - i);
      widen(a + i, left, n);
      widen(b + i, right, n);
      block(left, right, left, n);
      narrow(left, y + i, n);
    }
  }
}

/// y = block(x) over `count` elements of `dtype`, in parallel.
template <class Block>
void map_elements(const Exec& exec, std::int64_t count, DType dtype, const void* x, void* y, Block&& block) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(count, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      map_range(begin, end, static_cast<const T*>(x), static_cast<T*>(y), block);
    });
  });
}

/// y = block(a, b) over `count` elements of `dtype`, in parallel.
template <class Block>
void map_elements(const Exec& exec, std::int64_t count, DType dtype, const void* a, const void* b, void* y,
                  Block&& block) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(count, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      map_range(begin, end, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), block);
    });
  });
}

}  // namespace bantam::kernels::cpu
