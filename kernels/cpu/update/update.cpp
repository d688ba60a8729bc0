// The weight update on the CPU: granule by granule, each a vectorised loop of constant length.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/contracts/update/update.h"

#include <algorithm>
#include <cmath>

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/device/convert.h"
#include "bantam/kernels/tiling/update/update_rules.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kLanesOfSum = 8;

/// Σg² of a granule in double: no finite float overflows it, so it is finite exactly where every g is. In a fixed
/// order.
double granule_sum(const float* g) {
  double lanes[kLanesOfSum] = {};
  for (std::int64_t i = 0; i < kSpanGranule; i += kLanesOfSum) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanesOfSum; ++lane) {
      const double value = g[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// A granule's gradients where they lie, or made wide in `values` where they are narrow.
const float* gradients_of(const UpdateArena& arena, std::int64_t granule, float (&values)[kSpanGranule]) {
  const std::int64_t begin = arena.narrow.begin_of(granule);
  if (begin < 0) return arena.gradient + granule * kSpanGranule;
  const void* place = arena.gradient + begin * kSpanGranule;
  widen(arena.compute_dtype, element(place, arena.compute_dtype, (granule - begin) * kSpanGranule), values,
        kSpanGranule);
  return values;
}

/// One group's values, as the inner loops read them.
struct StepValues {
  float factor;  // what gradients are multiplied by
  float lr;
  float decay;            // times the weight, added to the gradient (sgd, adam)
  float decoupled_decay;  // times the weight, added to the step (adamw)
  float beta1, beta2, epsilon;
  float correction1, correction2;  // 1/(1 - beta^t)
};

/// 1/(1 - beta^t) by expm1, which keeps its digits where beta^t is close to 1.
float bias_correction(float beta, std::int64_t t) {
  return static_cast<float>(-1.0 / std::expm1(static_cast<double>(t) * std::log(static_cast<double>(beta))));
}

StepValues step_values(OptimizerKind kind, const UpdateGroup& group, const UpdateControl& control) {
  const bool decoupled = kind == OptimizerKind::adamw;
  const std::int64_t t = control.updates;
  return {.factor = control.gradient_factor,
          .lr = group.learning_rate,
          .decay = decoupled ? 0.0f : group.weight_decay,
          .decoupled_decay = decoupled ? group.weight_decay : 0.0f,
          .beta1 = group.beta1,
          .beta2 = group.beta2,
          .epsilon = group.epsilon,
          .correction1 = bias_correction(group.beta1, t),
          .correction2 = bias_correction(group.beta2, t)};
}

void sgd_granule(const StepValues s, bool nesterov, float* w, const float* gradient, float* m) {
  const float own = nesterov ? 1.0f : 0.0f, momentum = nesterov ? s.beta1 : 1.0f;
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) {
    const float g = gradient[i] * s.factor + s.decay * w[i];
    const float mi = s.beta1 * m[i] + g;
    m[i] = mi;
    w[i] -= s.lr * (own * g + momentum * mi);
  }
}

void plain_sgd_granule(const StepValues s, float* w, const float* gradient) {
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) w[i] -= s.lr * (gradient[i] * s.factor + s.decay * w[i]);
}

/// A granule's square roots in place. By hand: GCC keeps a call for errno in the loop, and so does not vectorise it.
void square_roots(float* values) {
  std::int64_t i = 0;
#if defined(__AVX__)
  for (; i < kSpanGranule; i += 8) _mm256_storeu_ps(values + i, _mm256_sqrt_ps(_mm256_loadu_ps(values + i)));
#endif
  for (; i < kSpanGranule; ++i) values[i] = std::sqrt(values[i]);
}

void adam_granule(const StepValues s, float* w, const float* gradient, float* m, float* v) {
  float root[kSpanGranule];  // √v_hat
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) {
    const float g = gradient[i] * s.factor + s.decay * w[i];
    const float vi = s.beta2 * v[i] + (1.0f - s.beta2) * g * g;
    m[i] = s.beta1 * m[i] + (1.0f - s.beta1) * g;
    v[i] = vi;
    root[i] = vi * s.correction2;
  }
  square_roots(root);
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) {
    // Where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
    const float divisor = root[i] + s.epsilon;
    const float step = m[i] * s.correction1 / divisor;
    w[i] -= s.lr * ((divisor != 0 ? step : 0.0f) + s.decoupled_decay * w[i]);
  }
}

void update_granule(OptimizerKind kind, const StepValues& s, const UpdateArena& arena, std::int64_t granule) {
  const std::int64_t at = granule * kSpanGranule;
  float* w = arena.master + at;
  float values[kSpanGranule];
  const float* gradient = gradients_of(arena, granule, values);
  if (kind == OptimizerKind::adam || kind == OptimizerKind::adamw) {
    adam_granule(s, w, gradient, arena.moment1 + at, arena.moment2 + at);
  } else if (arena.moment1 != nullptr) {
    sgd_granule(s, kind == OptimizerKind::sgd_nesterov, w, gradient, arena.moment1 + at);
  } else {
    plain_sgd_granule(s, w, gradient);
  }
}

}  // namespace

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl* control,
                  Workspace workspace) {
  (void)partial_sum_granules(arena, partial);  // throws where one belongs elsewhere
  add_up_parts(exec, partial);
  double* partials = static_cast<double*>(workspace.data);
  const std::int64_t parts = gradient_sum_parts(arena.granules);
  parallel_parts(parts, exec.threads, [&](std::int64_t part) {
    const std::int64_t end = std::min(arena.granules, (part + 1) * kGranulesOfCpuPartial);
    double sum = 0;
    float values[kSpanGranule];
    for (std::int64_t granule = part * kGranulesOfCpuPartial; granule < end; ++granule) {
      if (arena.spans[arena.span_of_granule[granule]].frozen) continue;
      sum += granule_sum(gradients_of(arena, granule, values));
    }
    partials[part] = sum;
  });
  double total = 0;
  for (std::int64_t part = 0; part < parts; ++part) total += partials[part];
  finish_begin_update(total, noted_learning_rate(arena), arena, *control);
}

void apply_update(const Exec& exec, OptimizerKind kind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl* control) {
  require_group_count(arena);
  const bool skip = control->found_nonfinite != 0;
  if (buffers.elements > 0)
    std::copy_n(skip ? buffers.current : buffers.next, buffers.elements, skip ? buffers.next : buffers.current);
  if (skip) return;
  parallel_ranges(arena.granules, kGranulesOfCpuPartial, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    std::int32_t group = -1;
    StepValues values{};
    for (std::int64_t granule = begin; granule < end; ++granule) {
      const ArenaSpan span = arena.spans[arena.span_of_granule[granule]];
      if (span.frozen) continue;
      if (span.group != group) {
        group = span.group;
        values = step_values(kind, arena.groups[group], *control);
      }
      update_granule(kind, values, arena, granule);
      if (arena.compute == nullptr || !span.compute_copy) continue;
      const std::int64_t at = granule * kSpanGranule;
      narrow(arena.compute_dtype, arena.master + at, element(arena.compute, arena.compute_dtype, at), kSpanGranule);
    }
  });
}

}  // namespace bantam::kernels::cpu
