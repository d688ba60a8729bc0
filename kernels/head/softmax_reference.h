// Softmax and its gradient as plain loops: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/head/softmax.h"

namespace bantam::kernels::reference {

template <class T>
std::vector<T> softmax_forward(std::int64_t columns, const std::vector<T>& x) {
  const auto n = static_cast<std::size_t>(columns);
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += n) {
    T top = x[row], sum = 0;
    for (std::size_t c = 0; c < n; ++c) top = std::max(top, x[row + c]);
    for (std::size_t c = 0; c < n; ++c) sum += y[row + c] = std::exp(x[row + c] - top);
    for (std::size_t c = 0; c < n; ++c) y[row + c] /= sum;
  }
  return y;
}

template <class T>
std::vector<T> softmax_grad(std::int64_t columns, const std::vector<T>& y, const std::vector<T>& dy) {
  const auto n = static_cast<std::size_t>(columns);
  std::vector<T> dx(y.size());
  for (std::size_t row = 0; row < y.size(); row += n) {
    T sum = 0;
    for (std::size_t c = 0; c < n; ++c) sum += y[row + c] * dy[row + c];
    for (std::size_t c = 0; c < n; ++c) dx[row + c] = y[row + c] * (dy[row + c] - sum);
  }
  return dx;
}

}  // namespace bantam::kernels::reference
