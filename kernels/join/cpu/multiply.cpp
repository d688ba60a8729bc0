// Means and products of whole arrays on the CPU, eight elements at a time.
#include "bantam/kernels/join/multiply.h"

#include "bantam/kernels/common/cpu/blocks.h"
#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/join/mean.h"

namespace bantam::kernels::cpu {

void mean_of(const Exec& exec, std::int64_t elements, DType dtype, const MeanInputs& inputs, void* y) {
  const Float8 share = broadcast8(1.0f / static_cast<float>(inputs.count));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(elements, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; at += kLanes) {
        const std::int64_t lanes = std::min(kLanes, end - at);
        Float8 sum = load_lanes(static_cast<const T*>(inputs.data[0]) + at, lanes);
        for (int i = 1; i < inputs.count; ++i) sum += load_lanes(static_cast<const T*>(inputs.data[i]) + at, lanes);
        store_lanes(static_cast<T*>(y) + at, lanes, sum * share);
      }
    });
  });
}

void multiply(const Exec& exec, std::int64_t count, DType dtype, const void* a, const void* b, void* y) {
  map_elements(exec, count, dtype, a, b, y, [](const float* left, const float* right, float* to, std::int64_t n) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[i] = left[i] * right[i];
  });
}

void multiply_grad(const Exec& exec, std::int64_t count, DType dtype, const MultiplyInputs& inputs,
                   const MultiplyGradients& to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *a = static_cast<const T*>(inputs.a), *b = static_cast<const T*>(inputs.b);
    T *da = static_cast<T*>(to.da), *db = static_cast<T*>(to.db);
    parallel_ranges(count, kElementsOfPart, exec.threads, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; at += kLanes) {
        const std::int64_t lanes = std::min(kLanes, end - at);
        const Float8 dy = load_lanes(static_cast<const T*>(inputs.dy) + at, lanes);
        if (da != nullptr) store_lanes(da + at, lanes, dy * load_lanes(b + at, lanes));
        if (db != nullptr) store_lanes(db + at, lanes, dy * load_lanes(a + at, lanes));
      }
    });
  });
}

}  // namespace bantam::kernels::cpu
