// The rules of the CPU's update: how each moves a granule, in loops of constant length; and their table.
#pragma once

#include <cstdint>

#include "bantam/kernels/update/cpu/granules.h"

namespace bantam::kernels::cpu {

/// w -= lr·(g + wd·w).
struct PlainSgd {
  static void move(const StepValues s, const Granule& q) {
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) q.w[i] -= s.lr * (q.gradient[i] * s.factor + s.decay * q.w[i]);
  }
};

/// sgd and sgd_nesterov.
struct Momentum {
  static void move(const StepValues s, const Granule& q) {
    float *const w = q.w, *const m = q.m;
    const float* const gradient = q.gradient;
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      const float g = gradient[i] * s.factor + s.decay * w[i];
      const float mi = s.beta1 * m[i] + g;
      m[i] = mi;
      w[i] -= s.lr * (s.own * g + s.momentum * mi);
    }
  }
};

struct DampenedMomentum {
  static void move(const StepValues s, const Granule& q) {
    float *const w = q.w, *const m = q.m;
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      const float g = q.gradient[i] * s.factor + s.decay * w[i];
      const float mi = s.beta1 * m[i] + s.undamped * g;
      m[i] = mi;
      w[i] -= s.lr * mi;
    }
  }
};

/// adam and adamw; lamb in two passes.
struct Adam {
  /// Moves m and v, and writes √v_hat to `root`.
  static void move_moments(const StepValues& s, const Granule& q, float (&root)[kSpanGranule]) {
    float *const m = q.m, *const v = q.v;
    const float *const w = q.w, *const gradient = q.gradient;
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      const float g = gradient[i] * s.factor + s.decay * w[i];
      const float vi = s.beta2 * v[i] + (1.0f - s.beta2) * g * g;
      m[i] = s.beta1 * m[i] + (1.0f - s.beta1) * g;
      v[i] = vi;
      root[i] = vi * s.correction2;
    }
    square_roots(root);
  }
  static void move(const StepValues s, const Granule& q) {
    float root[kSpanGranule];
    move_moments(s, q, root);
    float *const w = q.w, *const m = q.m;
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      // Where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
      const float divisor = root[i] + s.epsilon;
      const float step = m[i] * s.correction1 / divisor;
      w[i] -= s.lr * ((divisor != 0 ? step : 0.0f) + s.decoupled_decay * w[i]);
    }
  }
};

/// The slots: m is the mean of squares; then come the mean of gradients (centered) and the momentum buffer.
template <bool kCentered, bool kMomentum>
struct RmsProp {
  static void move(const StepValues s, const Granule& q) {
    float root[kSpanGranule];
    float *const w = q.w, *const squares = q.m, *const mean = q.v, *const buffer = kCentered ? q.b : q.v;
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      const float g = q.gradient[i] * s.factor + s.decay * w[i];
      float square = s.beta2 * squares[i] + (1.0f - s.beta2) * g * g;
      squares[i] = square;
      if constexpr (kCentered) {
        const float mi = s.beta2 * mean[i] + (1.0f - s.beta2) * g;
        mean[i] = mi;
        square = std::max(square - mi * mi, 0.0f);
      }
      root[i] = square;
    }
    square_roots(root);
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      const float g = q.gradient[i] * s.factor + s.decay * w[i];
      const float divisor = root[i] + s.epsilon;
      float step = divisor != 0 ? g / divisor : 0.0f;
      if constexpr (kMomentum) buffer[i] = step = s.beta1 * buffer[i] + step;
      w[i] -= s.lr * step;
    }
  }
};

struct Lion {
  static void move(const StepValues s, const Granule& q) {
    float *const w = q.w, *const m = q.m;
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) {
      const float g = q.gradient[i] * s.factor;
      const float direction = s.beta1 * m[i] + (1.0f - s.beta1) * g;
      m[i] = s.beta2 * m[i] + (1.0f - s.beta2) * g;
      const float sign = (direction > 0 ? 1.0f : 0.0f) - (direction < 0 ? 1.0f : 0.0f);
      w[i] -= s.lr * (sign + s.decoupled_decay * w[i]);
    }
  }
};

using MoveGranule = void (*)(const StepValues s, const Granule& q);

/// The rule of a kind that needs no norms of spans; `momentum`: whether there is a first moment (the sgd kinds).
inline MoveGranule rule_of(OptimizerKind kind, bool momentum) {
  struct Row {
    OptimizerKind kind;
    MoveGranule with, without;  // momentum
  };
  static constexpr Row kRules[] = {{OptimizerKind::sgd, Momentum::move, PlainSgd::move},
                                   {OptimizerKind::sgd_nesterov, Momentum::move, PlainSgd::move},
                                   {OptimizerKind::sgd_dampened, DampenedMomentum::move, PlainSgd::move},
                                   {OptimizerKind::adam, Adam::move, nullptr},
                                   {OptimizerKind::adamw, Adam::move, nullptr},
                                   {OptimizerKind::rmsprop, RmsProp<false, false>::move, nullptr},
                                   {OptimizerKind::rmsprop_momentum, RmsProp<false, true>::move, nullptr},
                                   {OptimizerKind::rmsprop_centered, RmsProp<true, false>::move, nullptr},
                                   {OptimizerKind::rmsprop_centered_momentum, RmsProp<true, true>::move, nullptr},
                                   {OptimizerKind::lion, Lion::move, nullptr}};
  for (const Row& row : kRules)
    if (row.kind == kind) return momentum ? row.with : row.without;
  return nullptr;
}

}  // namespace bantam::kernels::cpu
