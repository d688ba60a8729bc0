// Muon's kernels on the CPU, chunk by chunk.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/update/muon.h"

#include "bantam/base/parallel.h"
#include "bantam/kernels/update/cpu/weight_blocks.h"

namespace bantam::kernels::cpu {
namespace {

const ArenaSpan& span_of(const UpdateArena& arena, const SpanChunk& chunk) {
  return arena.spans[arena.span_of_weight_block[chunk.weight_block]];
}

/// Moves the momentum in slot 0 of kWeightBlockSize elements; writes u to slot 1.
void move_momentum(const UpdateGroup& group, float factor, bool nesterov, const WeightBlock& q) {
  const float beta = group.beta1, own = nesterov ? 1.0f - beta : 0.0f, momentum = nesterov ? beta : 1.0f;
#pragma omp simd
  for (std::int64_t i = 0; i < kWeightBlockSize; ++i) {
    const float g = q.gradient[i] * factor;
    const float mi = beta * q.slots[0][i] + (1.0f - beta) * g;
    q.slots[0][i] = mi;
    q.slots[1][i] = momentum * mi + own * g;
  }
}

/// The root of a matrix's sums: `which` 0 of u², 1 of w².
float norm_of(const UpdateArena& arena, const MuonMatrices& matrices, std::int64_t matrix, int which) {
  double sum = 0;
  for (std::int32_t i = matrices.first[matrix]; i < matrices.first[matrix] + matrices.chunks; ++i)
    sum += arena.chunks.sums[2 * i + which];
  return static_cast<float>(std::sqrt(sum));
}

/// Where a matrix's weight block lies in X.
std::int64_t place_in_x(const UpdateArena& arena, const MuonMatrices& matrices, std::int64_t matrix,
                        std::int64_t weight_block) {
  const std::int64_t begin = arena.chunks.list[matrices.first[matrix]].weight_block;
  return matrix * matrices.elements + (weight_block - begin) * kWeightBlockSize;
}

}  // namespace

void muon_momentum(const Exec& exec, const UpdateArena& arena, bool nesterov, const MuonNormalization& normalization,
                   const UpdateControl* control) {
  if (control->found_nonfinite != 0) return;
  const bool sums_weights = normalization.is_due(control->updates);
  parallel_parts(arena.chunks.count, exec.threads, [&](std::int64_t i) {
    const SpanChunk& chunk = arena.chunks.list[i];
    const ArenaSpan& span = span_of(arena, chunk);
    if (!moves(arena, span, control->updates)) return;
    WeightBlockScratch scratch;
    double sum = 0, weights = 0;
    for (std::int64_t weight_block = chunk.weight_block; weight_block < chunk.weight_block + chunk.weight_blocks;
         ++weight_block) {
      const WeightBlock q = weight_block_at(arena, *control, weight_block, scratch);
      move_momentum(arena.groups[span.group], control->gradient_factor, nesterov, q);
      sum += weight_block_squares(q.slots[1]);
      if (sums_weights) weights += weight_block_squares(q.w);
    }
    arena.chunks.sums[2 * i] = sum;
    if (sums_weights) arena.chunks.sums[2 * i + 1] = weights;
  });
}

void muon_normalize(const Exec& exec, const UpdateArena& arena, const MuonMatrices& matrices, DType dtype, void* x) {
  parallel_parts(std::int64_t{matrices.count} * matrices.chunks, exec.threads, [&](std::int64_t part) {
    const std::int64_t matrix = part / matrices.chunks;
    const float factor = 1.0f / (norm_of(arena, matrices, matrix, 0) + NewtonSchulz::kEpsilon);
    const SpanChunk& chunk = arena.chunks.list[matrices.first[matrix] + part % matrices.chunks];
    for (std::int64_t i = chunk.weight_block; i < chunk.weight_block + chunk.weight_blocks; ++i) {
      const float* u = arena.slots[1] + i * kWeightBlockSize;
      float values[kWeightBlockSize];
#pragma omp simd
      for (std::int64_t k = 0; k < kWeightBlockSize; ++k) values[k] = u[k] * factor;
      narrow(dtype, values, element(x, dtype, place_in_x(arena, matrices, matrix, i)), kWeightBlockSize);
    }
  });
}

void muon_polynomial(const Exec& exec, const MuonSquares& squares, const NewtonSchulz& p, DType dtype, const void* gram,
                     const void* square, void* out) {
  constexpr std::int64_t kBlock = 256;
  parallel_parts(squares.count * squares.n, exec.threads, [&](std::int64_t part) {
    const std::int64_t row = part % squares.n, at = part / squares.n * squares.stride + row * squares.n;
    for (std::int64_t begin = 0; begin < squares.n; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, squares.n - begin);
      float g[kBlock], values[kBlock];
      widen(dtype, element(gram, dtype, at + begin), g, count);
      widen(dtype, element(square, dtype, at + begin), values, count);
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) values[i] = p.b * g[i] + p.c * values[i];
      if (row >= begin && row < begin + count) values[row - begin] += p.a;
      narrow(dtype, values, element(out, dtype, at + begin), count);
    }
  });
}

void muon_apply(const Exec& exec, const UpdateArena& arena, const MuonMatrices& matrices,
                const MuonNormalization& normalization, DType dtype, const void* x, const UpdateControl* control) {
  if (control->found_nonfinite != 0) return;
  const bool normalizes = normalization.is_due(control->updates);
  parallel_parts(std::int64_t{matrices.count} * matrices.chunks, exec.threads, [&](std::int64_t part) {
    const std::int64_t matrix = part / matrices.chunks;
    const SpanChunk& chunk = arena.chunks.list[matrices.first[matrix] + part % matrices.chunks];
    const ArenaSpan& span = span_of(arena, chunk);
    if (!moves(arena, span, control->updates)) return;
    const float lr = arena.groups[span.group].learning_rate, decay = arena.groups[span.group].weight_decay;
    const float norm = normalizes ? norm_of(arena, matrices, matrix, 1) : 0.0f;
    const float factor = norm > 0.0f ? matrices.norm / norm : 1.0f;
    for (std::int64_t weight_block = chunk.weight_block; weight_block < chunk.weight_block + chunk.weight_blocks;
         ++weight_block) {
      float u[kWeightBlockSize], weights[kWeightBlockSize];
      float* const w = weights_of(arena, weight_block, weights);
      const std::int64_t place = place_in_x(arena, matrices, matrix, weight_block);
      const std::int64_t values = std::min(kWeightBlockSize, matrix * matrices.elements + matrices.values - place);
      widen(dtype, element(x, dtype, place), u, values);
      std::fill(u + values, u + kWeightBlockSize, 0.0f);
#pragma omp simd
      for (std::int64_t i = 0; i < kWeightBlockSize; ++i) {
        const float scaled = w[i] * factor;
        w[i] = scaled - lr * (matrices.scale * u[i] + decay * scaled);
      }
      store_compute(arena, span, weight_block, w);
    }
  });
}

}  // namespace bantam::kernels::cpu
