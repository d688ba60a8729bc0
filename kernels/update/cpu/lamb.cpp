// LAMB chunk by chunk, in two passes: the step is computed twice, so that it needs no memory.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/update/cpu/lamb.h"

#include "bantam/base/parallel.h"
#include "bantam/kernels/update/cpu/rules.h"

namespace bantam::kernels::cpu {
namespace {

/// u of a granule, of its moments as they are now; `step` has √v_hat before.
void lamb_step(const StepValues& s, const Granule& q, float (&step)[kSpanGranule]) {
  const float *const w = q.w, *const m = q.m;
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) {
    const float divisor = step[i] + s.epsilon, ratio = m[i] * s.correction1 / divisor;
    step[i] = (divisor != 0 ? ratio : 0.0f) + s.decoupled_decay * w[i];
  }
}

StepValues values_of(const UpdateArena& arena, ArenaSpan span, const UpdateControl& control) {
  return step_values(OptimizerKind::lamb, arena.groups[span.group], control.gradient_factor,
                     updates_of_group(arena, span.group, control.updates));
}

/// Moves a chunk's moments; writes its Σw² and Σu².
void lamb_moments(const UpdateArena& arena, const UpdateControl& control, const SpanChunk& chunk, double* sums) {
  const ArenaSpan span = arena.spans[arena.span_of_granule[chunk.granule]];
  const StepValues s = values_of(arena, span, control);
  GranuleRoom room;
  float step[kSpanGranule];
  sums[0] = sums[1] = 0;
  for (std::int64_t granule = chunk.granule; granule < chunk.granule + chunk.granules; ++granule) {
    const Granule q = granule_at(arena, control, granule, room);
    Adam::move_moments(s, q, step);
    lamb_step(s, q, step);
    sums[0] += granule_squares(q.w);
    sums[1] += granule_squares(step);
  }
}

float ratio_of(const SpanChunks& chunks, const SpanChunk& chunk) {
  double weights = 0, step = 0;
  for (std::int32_t i = chunk.first; i < chunk.first + chunk.chunks; ++i) {
    weights += chunks.sums[2 * i];
    step += chunks.sums[2 * i + 1];
  }
  return trust_ratio(weights, step);
}

void lamb_weights(const UpdateArena& arena, const UpdateControl& control, const SpanChunk& chunk) {
  const ArenaSpan span = arena.spans[arena.span_of_granule[chunk.granule]];
  const StepValues s = values_of(arena, span, control);
  const float rate = s.lr * ratio_of(arena.chunks, chunk);
  float step[kSpanGranule], weights[kSpanGranule];
  for (std::int64_t granule = chunk.granule; granule < chunk.granule + chunk.granules; ++granule) {
    const std::int64_t at = granule * kSpanGranule;
    const Granule q{weights_of(arena, granule, weights), nullptr, arena.moment1 + at, arena.moment2 + at, nullptr};
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) step[i] = q.v[i] * s.correction2;
    square_roots(step);
    lamb_step(s, q, step);
#pragma omp simd
    for (std::int64_t i = 0; i < kSpanGranule; ++i) q.w[i] -= rate * step[i];
    store_compute(arena, span, granule, q.w);
  }
}

}  // namespace

void lamb_update(const Exec& exec, const UpdateArena& arena, const UpdateControl& control) {
  const SpanChunks& chunks = arena.chunks;
  const auto each = [&](const auto& function) {
    parallel_parts(chunks.count, exec.threads, [&](std::int64_t i) {
      const SpanChunk& chunk = chunks.list[i];
      const ArenaSpan& span = arena.spans[arena.span_of_granule[chunk.granule]];
      if (moves(arena, span, control.updates)) function(chunk, chunks.sums + 2 * i);
    });
  };
  each([&](const SpanChunk& chunk, double* sums) { lamb_moments(arena, control, chunk, sums); });
  each([&](const SpanChunk& chunk, double*) { lamb_weights(arena, control, chunk); });
}

}  // namespace bantam::kernels::cpu
