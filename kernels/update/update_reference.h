// One element's optimizer step as the textbook formula, and sums of a tree over replicas: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/update/update.h"

namespace bantam::kernels::reference {

/// One weight and its moments.
template <class T>
struct WeightState {
  T w = 0, m = 0, v = 0, b = 0;
};

/// One of the rmsprop kinds.
template <class T>
WeightState<T> rmsprop_step(OptimizerKind kind, const UpdateGroup& group, T g, WeightState<T> s) {
  const T lr = group.learning_rate, alpha = group.beta2, momentum = group.beta1;
  const bool centered = kind == OptimizerKind::rmsprop_centered || kind == OptimizerKind::rmsprop_centered_momentum;
  s.m = alpha * s.m + (T(1) - alpha) * g * g;
  T square = s.m;
  if (centered) {
    s.v = alpha * s.v + (T(1) - alpha) * g;
    square = std::max(s.m - s.v * s.v, T(0));
  }
  const T step = g / (std::sqrt(square) + T(group.epsilon));
  if (kind == OptimizerKind::rmsprop || kind == OptimizerKind::rmsprop_centered) {
    s.w -= lr * step;
    return s;
  }
  T& buffer = centered ? s.b : s.v;
  buffer = momentum * buffer + step;
  s.w -= lr * buffer;
  return s;
}

/// m and v of Adam.
template <class T>
void adam_moments(const UpdateGroup& group, T g, WeightState<T>& s) {
  const T beta1 = group.beta1, beta2 = group.beta2;
  s.m = beta1 * s.m + (T(1) - beta1) * g;
  s.v = beta2 * s.v + (T(1) - beta2) * g * g;
}

/// Adam's bias-corrected step number t, which the learning rate multiplies.
template <class T>
T adam_direction(const UpdateGroup& group, std::int64_t t, const WeightState<T>& s) {
  const T m_hat = s.m / (T(1) - std::pow(T(group.beta1), T(t)));
  const T v_hat = s.v / (T(1) - std::pow(T(group.beta2), T(t)));
  return m_hat / (std::sqrt(v_hat) + T(group.epsilon));
}

/// Step number t (from 1) with the unscaled, clipped gradient g, of every kind but lamb.
template <class T>
WeightState<T> optimizer_step(OptimizerKind kind, const UpdateGroup& group, std::int64_t t, T g, WeightState<T> s) {
  using enum OptimizerKind;
  const T lr = group.learning_rate, wd = group.weight_decay, beta1 = group.beta1, beta2 = group.beta2;
  const bool decoupled = kind == adamw || kind == lion;
  if (decoupled) {
    s.w -= lr * wd * s.w;
  } else {
    g += wd * s.w;
  }
  if (kind == lion) {
    const T direction = beta1 * s.m + (T(1) - beta1) * g;
    s.w -= lr * T((direction > 0) - (direction < 0));
    s.m = beta2 * s.m + (T(1) - beta2) * g;
    return s;
  }
  if (kind == sgd || kind == sgd_nesterov || kind == sgd_dampened) {
    s.m = beta1 * s.m + (kind == sgd_dampened && t > 1 ? T(1) - T(group.dampening) : T(1)) * g;
    s.w -= lr * (kind == sgd_nesterov ? g + beta1 * s.m : s.m);
    return s;
  }
  if (kind != adam && kind != adamw) return rmsprop_step(kind, group, g, s);
  adam_moments(group, g, s);
  s.w -= lr * adam_direction(group, t, s);
  return s;
}

/// Lamb's step number t of a whole tensor: You et al. 2020, algorithm 2.
template <class T>
void lamb_step(const UpdateGroup& group, std::int64_t t, const std::vector<T>& g, std::vector<WeightState<T>>& states) {
  std::vector<T> u(states.size());
  T weights = 0, steps = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    adam_moments(group, g[i], states[i]);
    u[i] = adam_direction(group, t, states[i]) + T(group.weight_decay) * states[i].w;
    weights += states[i].w * states[i].w;
    steps += u[i] * u[i];
  }
  const T ratio = weights > 0 && steps > 0 ? std::sqrt(weights) / std::sqrt(steps) : T(1);
  for (std::size_t i = 0; i < states.size(); ++i) states[i].w -= T(group.learning_rate) * ratio * u[i];
}

/// √Σg² over `count` gradients.
template <class T>
T gradient_norm(std::int64_t count, const float* gradient) {
  T sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += T(gradient[i]) * T(gradient[i]);
  return std::sqrt(sum);
}

/// A binary tree over replicas, as its definition says: the node of `level` whose lowest replica is `first` is the sum
/// of its two halves, the lower one left, rounded to T. `terms`: one array a replica, of equal sizes.
template <class T>
std::vector<T> tree_node(const std::vector<std::vector<T>>& terms, int level, std::size_t first) {
  if (level == 0) return terms[first];
  std::vector<T> left = tree_node(terms, level - 1, first);
  const std::vector<T> right = tree_node(terms, level - 1, first + (std::size_t{1} << (level - 1)));
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<T>(left[i] + right[i]);
  return left;
}

}  // namespace bantam::kernels::reference
