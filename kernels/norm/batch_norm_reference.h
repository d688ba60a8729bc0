// Batch normalisation as plain loops (two passes over the rows): the oracle of the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/elementwise/activation_reference.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels::reference {

/// scale, shift and activation; empty vectors mean 1 and 0.
template <class T>
struct Affine {
  std::vector<T> scale, shift;
  ActivationFunction activation;

  T scale_at(std::size_t c) const { return scale.empty() ? T(1) : scale[c]; }
  /// z from x̂.
  T linear(std::size_t c, T normalised) const { return normalised * scale_at(c) + (shift.empty() ? T(0) : shift[c]); }
  T operator()(std::size_t c, T normalised) const {
    return activate(activation.kind, T(activation.slope), linear(c, normalised));
  }
  T derivative(std::size_t c, T normalised) const {
    return activation_derivative(activation.kind, T(activation.slope), linear(c, normalised));
  }
};

/// The results of forward in training: y (rows, channels), the rest (channels).
template <class T>
struct BatchNormTraining {
  std::vector<T> y, mean, variance, inv_std;
};

template <class T>
BatchNormTraining<T> batch_norm_forward_training(const BatchNormShape& s, const std::vector<T>& x,
                                                 const Affine<T>& affine, T epsilon) {
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
    for (std::size_t r = 0; r < rows; ++r)
      out.y[r * channels + c] = affine(c, (x[r * channels + c] - mean) * out.inv_std[c]);
  }
  return out;
}

/// running = (1 - r)·running + r·batch, r = running_part(update).
template <class T>
void batch_norm_update_running(const BatchNormShape& s, const BatchNormTraining<T>& batch, RunningUpdate update,
                               std::vector<T>& running_mean, std::vector<T>& running_variance) {
  const T rate = T(running_part(update));
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
                                                   const std::vector<T>& dy, const Affine<T>& affine,
                                                   const std::vector<T>& mean, const std::vector<T>& inv_std) {
  const auto rows = static_cast<std::size_t>(s.rows), channels = static_cast<std::size_t>(s.channels);
  BatchNormGradients<T> out{std::vector<T>(x.size()), std::vector<T>(channels), std::vector<T>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    T sum = 0, products = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const T normalised = (x[r * channels + c] - mean[c]) * inv_std[c];
      const T dz = dy[r * channels + c] * affine.derivative(c, normalised);
      sum += dz;
      products += dz * normalised;
    }
    out.dshift[c] = sum;
    out.dscale[c] = products;
    const T a = affine.scale_at(c) * inv_std[c];
    for (std::size_t r = 0; r < rows; ++r) {
      const T normalised = (x[r * channels + c] - mean[c]) * inv_std[c];
      const T dz = dy[r * channels + c] * affine.derivative(c, normalised);
      out.dx[r * channels + c] = a * (dz - sum / T(rows) - normalised * products / T(rows));
    }
  }
  return out;
}

template <class T>
std::vector<T> batch_norm_forward_inference(const BatchNormShape& s, const std::vector<T>& x, const Affine<T>& affine,
                                            T epsilon, const std::vector<T>& running_mean,
                                            const std::vector<T>& running_variance) {
  const auto channels = static_cast<std::size_t>(s.channels);
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    y[i] = affine(c, (x[i] - running_mean[c]) / std::sqrt(running_variance[c] + epsilon));
  }
  return y;
}

template <class T>
BatchNormGradients<T> batch_norm_backward_inference(const BatchNormShape& s, const std::vector<T>& x,
                                                    const std::vector<T>& dy, const Affine<T>& affine, T epsilon,
                                                    const std::vector<T>& running_mean,
                                                    const std::vector<T>& running_variance) {
  const auto channels = static_cast<std::size_t>(s.channels);
  BatchNormGradients<T> out{std::vector<T>(x.size()), std::vector<T>(channels), std::vector<T>(channels)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const T inv_std = T(1) / std::sqrt(running_variance[c] + epsilon), normalised = (x[i] - running_mean[c]) * inv_std;
    const T dz = dy[i] * affine.derivative(c, normalised);
    out.dshift[c] += dz;
    out.dscale[c] += dz * normalised;
    out.dx[i] = affine.scale_at(c) * inv_std * dz;
  }
  return out;
}

}  // namespace bantam::kernels::reference
