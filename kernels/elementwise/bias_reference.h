// Bias, alone and with an activation after it, and their gradients as plain loops: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/elementwise/activation_reference.h"
#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/elementwise/bias_activation.h"

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

/// y[r, c] = f(x[r, c] + b[c]).
template <class T>
std::vector<T> bias_activation_forward(ActivationFunction f, const BiasShape& shape, const std::vector<T>& x,
                                       const std::vector<T>& b) {
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = activate(f.kind, T(f.slope), x[i] + b[i % static_cast<std::size_t>(shape.channels)]);
  return y;
}

template <class T>
struct BiasActivationGrads {
  std::vector<T> dx, db;
};

/// dx = dy·f'(x + b), db[c] = Σ_r dx[r, c].
template <class T>
BiasActivationGrads<T> bias_activation_grad(ActivationFunction f, const BiasShape& shape, const std::vector<T>& x,
                                            const std::vector<T>& b, const std::vector<T>& dy) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  BiasActivationGrads<T> out{std::vector<T>(x.size()), std::vector<T>(channels, T(0))};
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.dx[i] = dy[i] * activation_derivative(f.kind, T(f.slope), x[i] + b[i % channels]);
    out.db[i % channels] += out.dx[i];
  }
  return out;
}

}  // namespace bantam::kernels::reference
