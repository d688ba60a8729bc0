// Batch normalisation as plain loops (two passes over the rows): the oracle of the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/batch_norm.h"

namespace bantam::kernels::reference {

/// What training forward gives: y (rows, channels), the rest (channels).
template <class T>
struct BatchNormTraining {
  std::vector<T> y, mean, variance, inv_std;
};

/// Empty `scale` and `shift` mean 1 and 0.
template <class T>
BatchNormTraining<T> batch_norm_forward_training(const BatchNormShape& s, const std::vector<T>& x,
                                                 const std::vector<T>& scale, const std::vector<T>& shift, T epsilon) {
  const auto rows = static_cast<std::size_t>(s.rows), channels = static_cast<std::size_t>(s.channels);
  BatchNormTraining<T> out{std::vector<T>(x.size()), std::vector<T>(channels), std::vector<T>(channels),
                           std::vector<T>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    T sum = 0, squares = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += x[r * channels + c];
    const T mean = sum / T(rows);
    for (std::size_t r = 0; r < rows; ++r) squares += (x[r * channels + c] - mean) * (x[r * channels + c] - mean);
    out.mean[c] = mean;
    out.variance[c] = squares / T(rows);
    out.inv_std[c] = T(1) / std::sqrt(out.variance[c] + epsilon);
    const T a = scale.empty() ? T(1) : scale[c], b = shift.empty() ? T(0) : shift[c];
    for (std::size_t r = 0; r < rows; ++r)
      out.y[r * channels + c] = (x[r * channels + c] - mean) * out.inv_std[c] * a + b;
  }
  return out;
}

/// running = (1 - rate)·running + rate·batch.
template <class T>
void batch_norm_update_running(const BatchNormShape& s, const BatchNormTraining<T>& batch, RunningUpdate update,
                               std::vector<T>& running_mean, std::vector<T>& running_variance) {
  const T rate = T(update.rate);
  const T correction = update.unbiased && s.rows > 1 ? T(s.rows) / T(s.rows - 1) : T(1);
  for (std::size_t c = 0; c < running_mean.size(); ++c) {
    running_mean[c] = (T(1) - rate) * running_mean[c] + rate * batch.mean[c];
    running_variance[c] = (T(1) - rate) * running_variance[c] + rate * batch.variance[c] * correction;
  }
}

/// Gradients: dx (rows, channels), dscale and dshift (channels).
template <class T>
struct BatchNormGradients {
  std::vector<T> dx, dscale, dshift;
};

template <class T>
BatchNormGradients<T> batch_norm_backward_training(const BatchNormShape& s, const std::vector<T>& x,
                                                   const std::vector<T>& dy, const std::vector<T>& scale,
                                                   const std::vector<T>& mean, const std::vector<T>& inv_std) {
  const auto rows = static_cast<std::size_t>(s.rows), channels = static_cast<std::size_t>(s.channels);
  BatchNormGradients<T> out{std::vector<T>(x.size()), std::vector<T>(channels), std::vector<T>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    T sum = 0, products = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      sum += dy[r * channels + c];
      products += dy[r * channels + c] * (x[r * channels + c] - mean[c]) * inv_std[c];
    }
    out.dshift[c] = sum;
    out.dscale[c] = products;
    const T a = (scale.empty() ? T(1) : scale[c]) * inv_std[c];
    for (std::size_t r = 0; r < rows; ++r) {
      const T normalised = (x[r * channels + c] - mean[c]) * inv_std[c];
      out.dx[r * channels + c] = a * (dy[r * channels + c] - sum / T(rows) - normalised * products / T(rows));
    }
  }
  return out;
}

template <class T>
std::vector<T> batch_norm_forward_inference(const BatchNormShape& s, const std::vector<T>& x,
                                            const std::vector<T>& scale, const std::vector<T>& shift, T epsilon,
                                            const std::vector<T>& running_mean,
                                            const std::vector<T>& running_variance) {
  const auto channels = static_cast<std::size_t>(s.channels);
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const T a = scale.empty() ? T(1) : scale[c], b = shift.empty() ? T(0) : shift[c];
    y[i] = (x[i] - running_mean[c]) / std::sqrt(running_variance[c] + epsilon) * a + b;
  }
  return y;
}

}  // namespace bantam::kernels::reference
