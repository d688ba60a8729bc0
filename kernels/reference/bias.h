// Bias and its gradient as plain loops: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/contracts/elementwise/bias.h"

namespace bantam::kernels::reference {

/// y[r, c] = x[r, c] + b[c].
template <class T>
std::vector<T> bias_forward(std::int64_t rows, std::int64_t channels, const std::vector<T>& x,
                            const std::vector<T>& b) {
  std::vector<T> y(x.size());
  for (std::int64_t i = 0; i < rows * channels; ++i) {
    y[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(i)] + b[static_cast<std::size_t>(i % channels)];
  }
  return y;
}

/// db[c] = Σ_r dy[r, c].
template <class T>
std::vector<T> bias_grad(std::int64_t rows, std::int64_t channels, const std::vector<T>& dy) {
  std::vector<T> db(static_cast<std::size_t>(channels), T(0));
  for (std::int64_t i = 0; i < rows * channels; ++i) {
    db[static_cast<std::size_t>(i % channels)] += dy[static_cast<std::size_t>(i)];
  }
  return db;
}

}  // namespace bantam::kernels::reference
