// Internal: one position's logits on the CPU, widened to float.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/cpu/vector_math.h"

namespace bantam::kernels::cpu {

/// The largest of a row and its first class; a NaN is never the largest.
struct RowTop {
  float value = -std::numeric_limits<float>::infinity();
  std::int64_t place = 0;
};

inline RowTop row_top(const float* row, std::int64_t classes) {
  RowTop top;
  for (std::int64_t c = 0; c < classes; ++c)
    if (row[c] > top.value) top = {row[c], c};
  return top;
}

/// Σ e^(l - top).
inline float row_exp_sum(const float* row, std::int64_t classes, float top) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < classes; ++c) sum += exp_bounded(row[c] - top);
  return sum;
}

/// Rows of any floating type as float32: `at` returns the row itself, or a copy that lives until the next call.
template <class T>
class WideRows {
 public:
  WideRows(const void* data, std::int64_t classes) : data_(static_cast<const T*>(data)), classes_(classes) {
    if constexpr (!std::is_same_v<T, float>) wide_.resize(static_cast<std::size_t>(classes));
  }
  const float* at(std::int64_t row) {
    if constexpr (std::is_same_v<T, float>) {
      return data_ + row * classes_;
    } else {
      widen(data_ + row * classes_, wide_.data(), classes_);
      return wide_.data();
    }
  }

 private:
  const T* data_;
  std::int64_t classes_;
  std::vector<float> wide_;
};

}  // namespace bantam::kernels::cpu
