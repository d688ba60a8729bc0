// Element-wise work as plain loops: the oracle of the tests.
#pragma once

#include <cstdint>

namespace bantam::kernels::reference {

template <class T>
void add(std::int64_t count, const T* a, const T* b, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

template <class T>
void scale(std::int64_t count, T factor, const T* x, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

}  // namespace bantam::kernels::reference
