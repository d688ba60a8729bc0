// Activations as plain formulas on one element type: the oracle of the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "bantam/kernels/elementwise/activation.h"

namespace bantam::kernels::reference {

/// Φ(x), the distribution function of the standard normal; by erfc, which keeps its digits in the left tail.
template <class T>
T normal_cdf(T x) {
  return T(0.5) * std::erfc(-x * T(0.70710678118654752440));
}

/// tanh(log(1 + e^x)), as n/(n + 2) with n = e^x·(e^x + 2), which neither cancels nor overflows.
template <class T>
T mish_gate(T x) {
  const T e = std::exp(x < 20 ? x : T(20)), n = e * (e + 2);
  return n / (n + 2);
}

template <class T>
T hard_sigmoid(T x) {
  return x <= -3 ? T(0) : x >= 3 ? T(1) : (x + 3) / 6;
}

template <class T>
T activate(Activation activation, T slope, T x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? T(0) : x;
    case Activation::relu6:
      return x < 0 ? T(0) : x > 6 ? T(6) : x;
    case Activation::leaky_relu:
      return x < 0 ? slope * x : x;
    case Activation::gelu:
      return x * normal_cdf(x);
    case Activation::silu:
      return x / (T(1) + std::exp(-x));
    case Activation::sigmoid:
      return T(1) / (T(1) + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::elu:
      return x < 0 ? slope * std::expm1(x) : x;
    case Activation::selu:
      return T(kSeluScale) * (x < 0 ? T(kSeluSlope) * std::expm1(x) : x);
    case Activation::mish:
      return x * mish_gate(x);
    case Activation::hard_swish:
      return x * hard_sigmoid(x);
    case Activation::hard_sigmoid:
      return hard_sigmoid(x);
    case Activation::softplus:
      return x > 20 ? x : std::log1p(std::exp(x));
  }
  return std::numeric_limits<T>::quiet_NaN();
}

/// mish' = t + x·sigmoid(x)·(1 - t²), t the gate.
template <class T>
T mish_slope(T x) {
  const T t = mish_gate(x);
  return t + x / (T(1) + std::exp(-x)) * (T(1) - t * t);
}

/// f' from `saved`: x or y, as activation_grad_reads_input says.
template <class T>
T activation_slope(Activation activation, T slope, T saved) {
  const T s = saved;
  switch (activation) {
    case Activation::none:
      return T(1);
    case Activation::relu:
      return s > 0 ? T(1) : T(0);
    case Activation::relu6:
      return s > 0 && s < 6 ? T(1) : T(0);
    case Activation::leaky_relu:
      return s > 0 ? T(1) : slope;
    case Activation::gelu:
      return normal_cdf(s) + s * T(0.39894228040143267794) * std::exp(-s * s / 2);
    case Activation::silu: {
      const T sigmoid = T(1) / (T(1) + std::exp(-s));
      return sigmoid * (T(1) + s * (T(1) - sigmoid));
    }
    case Activation::sigmoid:
      return s * (T(1) - s);
    case Activation::tanh:
      return T(1) - s * s;
    case Activation::elu:
      return s > 0 ? T(1) : s + slope;
    case Activation::selu:
      return s > 0 ? T(kSeluScale) : s + T(kSeluScale) * T(kSeluSlope);
    case Activation::mish:
      return mish_slope(s);
    case Activation::hard_swish:
      return s <= -3 ? T(0) : s >= 3 ? T(1) : s / 3 + T(0.5);
    case Activation::hard_sigmoid:
      return s > 0 && s < 1 ? T(1) / 6 : T(0);
    case Activation::softplus:
      return -std::expm1(-s);
  }
  return std::numeric_limits<T>::quiet_NaN();
}

/// f' from x.
template <class T>
T activation_derivative(Activation activation, T slope, T x) {
  return activation_slope(activation, slope,
                          activation_grad_reads_input(activation) ? x : activate(activation, slope, x));
}

template <class T>
void activation_forward(Activation activation, T slope, std::int64_t count, const T* x, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = activate(activation, slope, x[i]);
}

template <class T>
void activation_grad(Activation activation, T slope, std::int64_t count, const T* saved, const T* dy, T* dx) {
  for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] * activation_slope(activation, slope, saved[i]);
}

}  // namespace bantam::kernels::reference
