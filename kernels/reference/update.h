// One element's optimizer step as the textbook formula: the oracle of the tests.
#pragma once

#include <cmath>
#include <cstdint>

#include "bantam/kernels/contracts/update/update.h"

namespace bantam::kernels::reference {

/// One weight and its moments.
template <class T>
struct WeightState {
  T w = 0, m = 0, v = 0;
};

/// Step number t (from 1) with the unscaled, clipped gradient g.
template <class T>
WeightState<T> optimizer_step(OptimizerKind kind, const UpdateGroup& group, std::int64_t t, T g, WeightState<T> s) {
  const T lr = group.learning_rate, wd = group.weight_decay, beta1 = group.beta1, beta2 = group.beta2;
  if (kind == OptimizerKind::adamw) {
    s.w -= lr * wd * s.w;
  } else {
    g += wd * s.w;
  }
  if (kind == OptimizerKind::sgd || kind == OptimizerKind::sgd_nesterov) {
    s.m = beta1 * s.m + g;
    s.w -= lr * (kind == OptimizerKind::sgd ? s.m : g + beta1 * s.m);
    return s;
  }
  s.m = beta1 * s.m + (T(1) - beta1) * g;
  s.v = beta2 * s.v + (T(1) - beta2) * g * g;
  const T m_hat = s.m / (T(1) - std::pow(beta1, T(t)));
  const T v_hat = s.v / (T(1) - std::pow(beta2, T(t)));
  s.w -= lr * m_hat / (std::sqrt(v_hat) + T(group.epsilon));
  return s;
}

/// √Σg² over `count` gradients.
template <class T>
T gradient_norm(std::int64_t count, const float* gradient) {
  T sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += T(gradient[i]) * T(gradient[i]);
  return std::sqrt(sum);
}

}  // namespace bantam::kernels::reference
