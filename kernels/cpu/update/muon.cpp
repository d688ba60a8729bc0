// Muon's kernels on the CPU, chunk by chunk.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/contracts/update/muon.h"

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/update/granules.h"

namespace bantam::kernels::cpu {
namespace {

const ArenaSpan& span_of(const UpdateArena& arena, const SpanChunk& chunk) {
  return arena.spans[arena.span_of_granule[chunk.granule]];
}

/// Of a granule; writes u to q.v.
void move_momentum(const UpdateGroup& group, float factor, bool nesterov, const Granule& q) {
  const float beta = group.beta1, own = nesterov ? 1.0f - beta : 0.0f, momentum = nesterov ? beta : 1.0f;
#pragma omp simd
  for (std::int64_t i = 0; i < kSpanGranule; ++i) {
    const float g = q.gradient[i] * factor;
    const float mi = beta * q.m[i] + (1.0f - beta) * g;
    q.m[i] = mi;
    q.v[i] = momentum * mi + own * g;
  }
}

}  // namespace

void muon_momentum(const Exec& exec, const UpdateArena& arena, bool nesterov, const UpdateControl* control) {
  if (control->found_nonfinite != 0) return;
  parallel_parts(arena.chunks.count, exec.threads, [&](std::int64_t i) {
    const SpanChunk& chunk = arena.chunks.list[i];
    const ArenaSpan& span = span_of(arena, chunk);
    if (!moves(arena, span, control->updates)) return;
    float gradients[kSpanGranule];
    double sum = 0;
    for (std::int64_t granule = chunk.granule; granule < chunk.granule + chunk.granules; ++granule) {
      const Granule q = granule_at(arena, *control, granule, gradients);
      move_momentum(arena.groups[span.group], control->gradient_factor, nesterov, q);
      sum += granule_squares(q.v);
    }
    arena.chunks.sums[2 * i] = sum;
  });
}

void muon_normalize(const Exec& exec, const UpdateArena& arena, const MuonMatrix& matrix, float* x) {
  double sum = 0;
  for (std::int32_t i = matrix.first; i < matrix.first + matrix.chunks; ++i) sum += arena.chunks.sums[2 * i];
  const float factor = 1.0f / (static_cast<float>(std::sqrt(sum)) + NewtonSchulz::kEpsilon);
  const std::int64_t begin = arena.chunks.list[matrix.first].granule * kSpanGranule;
  parallel_parts(matrix.chunks, exec.threads, [&](std::int64_t part) {
    const SpanChunk& chunk = arena.chunks.list[matrix.first + part];
    const float* u = arena.moment2 + chunk.granule * kSpanGranule;
    float* to = x + (chunk.granule * kSpanGranule - begin);
    for (std::int64_t i = 0; i < chunk.granules * kSpanGranule; ++i) to[i] = u[i] * factor;
  });
}

void muon_polynomial(const Exec& exec, std::int64_t n, const float* gram, const float* square, float* out) {
  parallel_parts(n, exec.threads, [&](std::int64_t row) {
    const std::int64_t at = row * n;
    for (std::int64_t i = at; i < at + n; ++i) out[i] = NewtonSchulz::kB * gram[i] + NewtonSchulz::kC * square[i];
    out[at + row] += NewtonSchulz::kA;
  });
}

void muon_apply(const Exec& exec, const UpdateArena& arena, const MuonMatrix& matrix, const UpdateControl* control) {
  if (control->found_nonfinite != 0) return;
  parallel_parts(matrix.chunks, exec.threads, [&](std::int64_t part) {
    const SpanChunk& chunk = arena.chunks.list[matrix.first + part];
    const ArenaSpan& span = span_of(arena, chunk);
    if (!moves(arena, span, control->updates)) return;
    const float lr = arena.groups[span.group].learning_rate, decay = arena.groups[span.group].weight_decay;
    for (std::int64_t granule = chunk.granule; granule < chunk.granule + chunk.granules; ++granule) {
      float* const w = arena.master + granule * kSpanGranule;
      const float* const u = arena.moment2 + granule * kSpanGranule;
#pragma omp simd
      for (std::int64_t i = 0; i < kSpanGranule; ++i) w[i] -= lr * (matrix.scale * u[i] + decay * w[i]);
      store_compute(arena, span, granule);
    }
  });
}

}  // namespace bantam::kernels::cpu
