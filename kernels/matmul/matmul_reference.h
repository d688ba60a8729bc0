// Matrix product as plain loops: the oracle of tests.
#pragma once

#include "bantam/kernels/matmul/matmul.h"

namespace bantam::kernels::reference {

/// C = op(A)·op(B), or C += op(A)·op(B) where `accumulate`.
template <class T>
void matmul(const MatmulShape& s, const T* a, const T* b, T* c, bool accumulate) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      T sum = accumulate ? c[i * s.n + j] : T(0);
      for (std::int64_t p = 0; p < s.k; ++p) {
        sum += (s.transpose_a ? a[p * s.m + i] : a[i * s.k + p]) * (s.transpose_b ? b[j * s.k + p] : b[p * s.n + j]);
      }
      c[i * s.n + j] = sum;
    }
  }
}

}  // namespace bantam::kernels::reference
