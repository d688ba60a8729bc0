// Squeeze-and-excitation's gate as plain loops: the oracle of the tests.
#pragma once

#include <vector>

#include "bantam/kernels/elementwise/activation_reference.h"
#include "bantam/kernels/join/squeeze_excite.h"

namespace bantam::kernels::reference {

template <class T>
struct SqueezeExciteParameters {
  std::vector<T> reduce, reduce_bias, expand, expand_bias;
};
template <class T>
struct SqueezeExciteResult {
  std::vector<T> reduced, hidden, expanded, factor;
};

/// y[n, r] = Σ_k w[r, k]·x[n, k] + b[r].
template <class T>
std::vector<T> dense(std::int64_t samples, const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& b) {
  const std::size_t rows = b.size(), depth = w.size() / rows;
  std::vector<T> y;
  for (std::size_t n = 0; n < static_cast<std::size_t>(samples); ++n)
    for (std::size_t r = 0; r < rows; ++r) {
      T sum = b[r];
      for (std::size_t k = 0; k < depth; ++k) sum += w[r * depth + k] * x[n * depth + k];
      y.push_back(sum);
    }
  return y;
}

template <class T>
std::vector<T> activated(const ActivationFunction& f, const std::vector<T>& x) {
  std::vector<T> y;
  for (const T v : x) y.push_back(activate(f.kind, static_cast<T>(f.slope), v));
  return y;
}

template <class T>
SqueezeExciteResult<T> squeeze_excite_forward(const SqueezeExciteShape& s, const std::vector<T>& mean,
                                              const SqueezeExciteParameters<T>& p) {
  SqueezeExciteResult<T> to;
  to.reduced = dense(s.samples, mean, p.reduce, p.reduce_bias);
  to.hidden = activated(s.activation, to.reduced);
  to.expanded = dense(s.samples, to.hidden, p.expand, p.expand_bias);
  to.factor = activated(s.gate, to.expanded);
  return to;
}

/// For y = w·x + b, from dy: dx[n, k] = Σ_r dy[n, r]·w[r, k], dw[r, k] = Σ_n dy[n, r]·x[n, k], db[r] = Σ_n dy[n, r].
template <class T>
struct DenseGradients {
  std::vector<T> dx, dw, db;

  DenseGradients(const std::vector<T>& dy, const std::vector<T>& x, const std::vector<T>& w, std::size_t rows)
      : dx(x.size()), dw(w.size()), db(rows) {
    const std::size_t depth = w.size() / rows;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const std::size_t n = i / rows, r = i % rows;
      db[r] += dy[i];
      for (std::size_t k = 0; k < depth; ++k) {
        dx[n * depth + k] += dy[i] * w[r * depth + k];
        dw[r * depth + k] += dy[i] * x[n * depth + k];
      }
    }
  }
};

/// dy·f'(x).
template <class T>
std::vector<T> times_derivative(const ActivationFunction& f, const std::vector<T>& x, std::vector<T> dy) {
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= activation_derivative(f.kind, static_cast<T>(f.slope), x[i]);
  return dy;
}

template <class T>
struct SqueezeExciteGradientsResult {
  std::vector<T> dmean;  ///< not divided by positions
  SqueezeExciteParameters<T> parameters;
};

template <class T>
SqueezeExciteGradientsResult<T> squeeze_excite_grad(const SqueezeExciteShape& s, const std::vector<T>& mean,
                                                    const SqueezeExciteParameters<T>& p,
                                                    const std::vector<T>& dfactor) {
  const SqueezeExciteResult<T> values = squeeze_excite_forward(s, mean, p);
  const DenseGradients<T> expand(times_derivative(s.gate, values.expanded, dfactor), values.hidden, p.expand,
                                 static_cast<std::size_t>(s.channels));
  const DenseGradients<T> reduce(times_derivative(s.activation, values.reduced, expand.dx), mean, p.reduce,
                                 static_cast<std::size_t>(s.units));
  return {reduce.dx, {reduce.dw, reduce.db, expand.dw, expand.db}};
}

}  // namespace bantam::kernels::reference
