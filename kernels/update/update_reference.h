// One element's optimizer step as the textbook formula, and sums of a tree over replicas: the oracle of the tests.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/update/update.h"

namespace bantam::kernels::reference {

/// One weight and its slots, in their order.
template <class T>
struct WeightState {
  T w = 0, m = 0, v = 0, b = 0, before = 0;
};

/// Step number t of Adan: Xie et al. 2022, algorithm 1, its betas being 1 - those here.
template <class T>
WeightState<T> adan_step(const UpdateGroup& group, std::int64_t t, T g, WeightState<T> s) {
  const T lr = group.learning_rate, beta1 = group.beta1, beta2 = group.beta2, beta3 = group.beta3;
  const T difference = t == 1 ? T(0) : g - s.before, ahead = g + beta2 * difference;
  s.before = g;
  s.m = beta1 * s.m + (T(1) - beta1) * g;
  s.v = beta2 * s.v + (T(1) - beta2) * difference;
  s.b = beta3 * s.b + (T(1) - beta3) * ahead * ahead;
  const T m_hat = s.m / (T(1) - std::pow(beta1, T(t))), v_hat = s.v / (T(1) - std::pow(beta2, T(t)));
  const T root = std::sqrt(s.b / (T(1) - std::pow(beta3, T(t)))) + T(group.epsilon);
  s.w = (s.w - lr * (m_hat + beta2 * v_hat) / root) / (T(1) + lr * T(group.weight_decay));
  return s;
}

/// One of the rmsprop kinds.
template <class T>
WeightState<T> rmsprop_step(UpdateKind kind, const UpdateGroup& group, T g, WeightState<T> s) {
  const T lr = group.learning_rate, alpha = group.beta2, momentum = group.beta1;
  const bool centered = kind == UpdateKind::rmsprop_centered || kind == UpdateKind::rmsprop_centered_momentum;
  s.m = alpha * s.m + (T(1) - alpha) * g * g;
  T square = s.m;
  if (centered) {
    s.v = alpha * s.v + (T(1) - alpha) * g;
    square = std::max(s.m - s.v * s.v, T(0));
  }
  const T step = g / (std::sqrt(square) + T(group.epsilon));
  if (kind == UpdateKind::rmsprop || kind == UpdateKind::rmsprop_centered) {
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
WeightState<T> optimizer_step(UpdateKind kind, const UpdateGroup& group, std::int64_t t, T g, WeightState<T> s) {
  using enum UpdateKind;
  if (kind == adan) return adan_step(group, t, g, s);
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
  if (kind == sgd) {
    s.w -= lr * g;
    return s;
  }
  if (kind == sgd_momentum || kind == sgd_nesterov || kind == sgd_dampened) {
    s.m = beta1 * s.m + (kind == sgd_dampened && t > 1 ? T(1) - T(group.beta3) : T(1)) * g;
    s.w -= lr * (kind == sgd_nesterov ? g + beta1 * s.m : s.m);
    return s;
  }
  if (kind != adam && kind != adamw) return rmsprop_step(kind, group, g, s);
  adam_moments(group, g, s);
  s.w -= lr * adam_direction(group, t, s);
  return s;
}

/// The weight after each of three updates by hand, from w = 0.5 with gradients 0.1, -0.2, 0.3.
struct WorkedExample {
  UpdateKind kind;
  UpdateGroup group;
  std::array<double, 3> weights;
};

inline constexpr WorkedExample kWorkedExamples[] = {
    {UpdateKind::sgd, {.learning_rate = 0.1f}, {0.49, 0.51, 0.48}},
    // m = 0.105, -0.100605, 0.214451105 with g + 0.01·w.
    {UpdateKind::sgd_momentum,
     {.learning_rate = 0.1f, .weight_decay = 0.01f, .beta1 = 0.9f},
     {0.4895, 0.4995605, 0.4781153895}},
    {UpdateKind::sgd_nesterov,
     {.learning_rate = 0.1f, .weight_decay = 0.01f, .beta1 = 0.9f},
     {0.48005, 0.508632905, 0.4588231619805}},
    // m = 0.1, then 0.9·0.1 - 0.5·0.2 and 0.9·(-0.01) + 0.5·0.3: the first gradient counts whole.
    {UpdateKind::sgd_dampened, {.learning_rate = 0.1f, .beta1 = 0.9f, .beta3 = 0.5f}, {0.49, 0.491, 0.4769}},
    // m = 0.01, -0.011, 0.0201 and v = 1e-5, 4.999e-5, 1.3994001e-4, corrected by 1 - 0.9^t and 1 - 0.999^t.
    {UpdateKind::adam, {.learning_rate = 0.1f}, {0.4000000999999, 0.43661042955255, 0.40228633740779}},
    // Decay 0.5 is added to the gradient, and so passes through the moments.
    {UpdateKind::adam,
     {.learning_rate = 0.1f, .weight_decay = 0.5f},
     {0.40000002857142, 0.33299422720016, 0.25081269803326}},
    {UpdateKind::adamw,
     {.learning_rate = 0.1f, .weight_decay = 0.01f},
     {0.3995000999999, 0.43571092945255, 0.40095112637834}},
    // The mean of squares is 0.001, 0.0049, 0.01341, that of gradients 0.01, -0.011, 0.0201; the first step of the
    // plain rule is 0.1·0.1/√0.001.
    {UpdateKind::rmsprop,
     {.learning_rate = 0.1f, .beta1 = 0.5f, .beta2 = 0.9f},
     {0.18377323398, 0.4694871115316, 0.21042345516964}},
    {UpdateKind::rmsprop_centered,
     {.learning_rate = 0.1f, .beta1 = 0.5f, .beta2 = 0.9f},
     {0.16666777777407, 0.45597605034558, 0.19291947247834}},
    {UpdateKind::rmsprop_momentum,
     {.learning_rate = 0.1f, .beta1 = 0.5f, .beta2 = 0.9f},
     {0.18377323398, 0.3113737285216, 0.11611031943044}},
    {UpdateKind::rmsprop_centered_momentum,
     {.learning_rate = 0.1f, .beta1 = 0.5f, .beta2 = 0.9f},
     {0.16666777777407, 0.28930993923262, 0.08757444209465}},
    // The signs of 0.9·m + 0.1·g are those of g. Decay shrinks the weight by 0.05 first.
    {UpdateKind::lion, {.learning_rate = 0.1f, .beta1 = 0.9f, .beta2 = 0.99f}, {0.4, 0.5, 0.4}},
    {UpdateKind::lion,
     {.learning_rate = 0.1f, .weight_decay = 0.5f, .beta1 = 0.9f, .beta2 = 0.99f},
     {0.375, 0.45625, 0.3334375}},
    // m = 0.05, -0.075, 0.1125; differences 0, -0.3, 0.5, so v = 0, -0.15, 0.175; gradients ahead 0.1, -0.35, 0.55, so
    // n = 0.0025, 0.0325, 0.1; corrected by 1 - 0.5^t and 1 - 0.75^t: steps 0.1/0.1, -0.2/√0.0742857,
    // 0.2285714/√0.172973.
    {UpdateKind::adan,
     {.learning_rate = 0.1f, .beta1 = 0.5f, .beta2 = 0.5f, .beta3 = 0.75f},
     {0.4000000999999, 0.47338001164737, 0.41842178468545}},
    // Decay divides the weight by 1.05.
    {UpdateKind::adan,
     {.learning_rate = 0.1f, .weight_decay = 0.5f, .beta1 = 0.5f, .beta2 = 0.5f, .beta3 = 0.75f},
     {0.38095247619038, 0.43269751222652, 0.359751700252}}};

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
