// Add, scale, cast and fill on the CPU.
#include "bantam/kernels/elementwise/elementwise.h"

#include "bantam/kernels/common/cpu/blocks.h"

namespace bantam::kernels::cpu {
namespace {

/// Widens `n` values of `from`, starting at element `begin`. uint8 is the one type that is not floating.
void widen_from(DType from, const void* x, std::int64_t begin, std::int64_t n, float* values) {
  if (from != DType::uint8) return widen(from, element(x, from, begin), values, n);
  const std::uint8_t* bytes = static_cast<const std::uint8_t*>(x) + begin;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(static_cast<std::int32_t>(bytes[i]));
}

}  // namespace

void add(const Exec& exec, std::int64_t count, DType dtype, const void* a, const void* b, void* y) {
  map_elements(exec, count, dtype, a, b, y, [](const float* left, const float* right, float* sum, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) sum[i] = left[i] + right[i];
  });
}

void scale(const Exec& exec, std::int64_t count, DType dtype, float factor, const void* x, void* y) {
  map_elements(exec, count, dtype, x, y, [factor](const float* from, float* to, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[i] = factor * from[i];
  });
}

void cast(const Exec& exec, std::int64_t count, DType from, const void* x, DType to, void* y) {
  parallel_ranges(count, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    float values[kElementsOfBlock];
    for (std::int64_t i = begin; i < end; i += kElementsOfBlock) {
      const std::int64_t n = std::min(kElementsOfBlock, end - i);
      widen_from(from, x, i, n, values);
      narrow(to, values, element(y, to, i), n);
    }
  });
}

void fill(const Exec& exec, std::int64_t count, DType dtype, float value, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(count, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      std::fill(static_cast<T*>(y) + begin, static_cast<T*>(y) + end, T(value));
    });
  });
}

}  // namespace bantam::kernels::cpu
