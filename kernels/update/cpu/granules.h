// A granule of the arena as the CPU's rules see it: its gradients, and the values of its group.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/update/update.h"
#include "bantam/kernels/update/update_rules.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace bantam::kernels::cpu {

constexpr std::int64_t kLanesOfSum = 8;

/// Σx² of a granule in double: no finite float overflows it, so it is finite exactly where every x is. In a fixed
/// order.
inline double granule_sum(const float* x) {
  double lanes[kLanesOfSum] = {};
  for (std::int64_t i = 0; i < kSpanGranule; i += kLanesOfSum) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanesOfSum; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// The same for norms, of values whose squares are floats: four terms of each of 32 lanes in float, then in double.
inline double granule_squares(const float* x) {
  constexpr std::int64_t kLanes = 32;
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < kSpanGranule; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(lanes[lane]);
  return sum;
}

/// A granule's gradients where they lie, or made wide in `values` where they are narrow.
inline const float* gradients_of(const UpdateArena& arena, std::int64_t granule, float (&values)[kSpanGranule]) {
  const std::int64_t begin = arena.narrow.begin_of(granule);
  if (begin < 0) return arena.gradient + granule * kSpanGranule;
  const void* place = arena.gradient + begin * kSpanGranule;
  widen(arena.compute_dtype, element(place, arena.compute_dtype, (granule - begin) * kSpanGranule), values,
        kSpanGranule);
  return values;
}

/// The same cut to [-limit, limit]: in `values`.
inline const float* gradients_within(const UpdateArena& arena, std::int64_t granule, float limit,
                                     float (&values)[kSpanGranule]) {
  const float* gradient = gradients_of(arena, granule, values);
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) values[i] = std::min(std::max(gradient[i], -limit), limit);
  return values;
}

/// Room for what lies in memory in another form than a rule reads it.
struct GranuleRoom {
  float gradients[kSpanGranule], weights[kSpanGranule];
};

/// A granule's weights where they lie, or made wide in `values` where they have no master.
inline float* weights_of(const UpdateArena& arena, std::int64_t granule, float (&values)[kSpanGranule]) {
  const std::int64_t at = granule * kSpanGranule;
  if (has_master(arena, granule)) return arena.master + (at - arena.first_master);
  widen(arena.compute_dtype, element(arena.compute, arena.compute_dtype, at), values, kSpanGranule);
  return values;
}

/// What a rule moves: kSpanGranule elements of each. Moments that the rule does not keep may be null.
struct Granule {
  float* w;
  const float* gradient;  // to be multiplied by StepValues::factor
  float *m, *v, *b;
};

/// Of granule number `granule`.
inline Granule granule_at(const UpdateArena& arena, const UpdateControl& control, std::int64_t granule,
                          GranuleRoom& room) {
  const std::int64_t at = granule * kSpanGranule;
  const auto slot = [at](float* moment) { return moment == nullptr ? nullptr : moment + at; };
  const float* gradient =
      arena.clip_value > 0
          ? gradients_within(arena, granule, gradient_limit(arena, control.gradient_factor), room.gradients)
          : gradients_of(arena, granule, room.gradients);
  return {.w = weights_of(arena, granule, room.weights),
          .gradient = gradient,
          .m = slot(arena.moment1),
          .v = slot(arena.moment2),
          .b = slot(arena.moment3)};
}

/// Where the span has a compute copy, or its weights lie there alone, casts the granule's new weights into it; `w` is
/// what weights_of returned.
inline void store_compute(const UpdateArena& arena, ArenaSpan span, std::int64_t granule, const float* w) {
  if (arena.compute == nullptr || !span.compute_copy) return;
  const std::int64_t at = granule * kSpanGranule;
  narrow(arena.compute_dtype, w, element(arena.compute, arena.compute_dtype, at), kSpanGranule);
}

/// One group's values, as the inner loops read them.
struct StepValues {
  float factor;  // what gradients are multiplied by
  float lr;
  float decay;            // times the weight, added to the gradient (sgd, adam, rmsprop)
  float decoupled_decay;  // times the weight, added to the step (adamw, lion, lamb)
  float beta1, beta2, epsilon;
  float correction1, correction2;  // 1/(1 - beta^t)
  float own, momentum;             // sgd's step is own·g + momentum·m
  float undamped;                  // sgd_dampened: what the gradient is multiplied by
};

/// 1/(1 - beta^t) by expm1, which keeps its digits where beta^t is close to 1.
inline float bias_correction(float beta, std::int64_t t) {
  return static_cast<float>(-1.0 / std::expm1(static_cast<double>(t) * std::log(static_cast<double>(beta))));
}

/// Of update t of the group.
inline StepValues step_values(OptimizerKind kind, const UpdateGroup& group, float factor, std::int64_t t) {
  const bool decoupled = decay_is_decoupled(kind), nesterov = kind == OptimizerKind::sgd_nesterov;
  return {.factor = factor,
          .lr = group.learning_rate,
          .decay = decoupled ? 0.0f : group.weight_decay,
          .decoupled_decay = decoupled ? group.weight_decay : 0.0f,
          .beta1 = group.beta1,
          .beta2 = group.beta2,
          .epsilon = group.epsilon,
          .correction1 = bias_correction(group.beta1, t),
          .correction2 = bias_correction(group.beta2, t),
          .own = nesterov ? 1.0f : 0.0f,
          .momentum = nesterov ? group.beta1 : 1.0f,
          .undamped = undamped(group, t)};
}

/// A granule's square roots in place. By hand: GCC keeps a call for errno in the loop, and so does not vectorise it.
inline void square_roots(float* values) {
  std::int64_t i = 0;
#if defined(__AVX__)
  for (; i < kSpanGranule; i += 8) _mm256_storeu_ps(values + i, _mm256_sqrt_ps(_mm256_loadu_ps(values + i)));
#endif
  for (; i < kSpanGranule; ++i) values[i] = std::sqrt(values[i]);
}

}  // namespace bantam::kernels::cpu
