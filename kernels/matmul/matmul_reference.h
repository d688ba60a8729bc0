// Matrix product as plain loops: the oracle of tests.
#pragma once

#include "bantam/kernels/matmul/matmul.h"

namespace bantam::kernels::reference {

/// C = op(A)·op(B) + bias + residual, or C += op(A)·op(B) + bias where `accumulate`; bias (n) and residual (m, n) may
/// be null.
template <class T>
void matmul(const MatmulShape& s, const T* a, const T* b, T* c, bool accumulate, const T* bias = nullptr,
            const T* residual = nullptr) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      T sum = accumulate ? c[i * s.n + j] : T(0);
      if (bias != nullptr) sum += bias[j];
      if (residual != nullptr) sum += residual[i * s.n + j];
      for (std::int64_t p = 0; p < s.k; ++p) {
        sum += (s.transpose_a ? a[p * s.m + i] : a[i * s.k + p]) * (s.transpose_b ? b[j * s.k + p] : b[p * s.n + j]);
      }
      c[i * s.n + j] = sum;
    }
  }
}

}  // namespace bantam::kernels::reference
