// LAMB chunk by chunk, in two passes: the step is computed twice, so that it needs no memory.

#include "bantam/kernels/update/cpu/lamb.h"

#include "bantam/base/parallel.h"
#include "bantam/kernels/update/cpu/weight_blocks.h"

namespace bantam::kernels::cpu {
namespace {

using Rule = rules::Lamb<CpuMath>;

rules::StepValues values_of(const UpdateArena& arena, ArenaSpan span, const UpdateControl& control) {
  return step_values<Rule, CpuMath>(true, arena.groups[span.group],
                                    updates_of_group(arena, span.group, control.updates));
}

[[gnu::always_inline]] inline float step_of(const WeightBlock& q, std::int64_t i, const rules::StepValues& s) {
  return Rule::step(load_element<Rule::kSlots>(q, i), s);
}

/// Returns the step by the new means.
[[gnu::always_inline]] inline float move_means(const WeightBlock& q, std::int64_t i, float factor,
                                               const rules::StepValues& s) {
  rules::Element<Rule::kSlots> e = load_element<Rule::kSlots>(q, i);
  Rule::move_means(e, q.gradient[i] * factor, s);
  store_slots(q, i, e);
  return Rule::step(e, s);
}

/// Moves a chunk's means; writes its Σw² and Σu².
void lamb_moments(const UpdateArena& arena, const UpdateControl& control, const SpanChunk& chunk, double* sums) {
  const ArenaSpan span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
  const rules::StepValues s = values_of(arena, span, control);
  WeightBlockScratch scratch;
  float step[kWeightBlockSize];
  sums[0] = sums[1] = 0;
  for (std::int64_t weight_block = chunk.weight_block; weight_block < chunk.weight_block + chunk.weight_blocks;
       ++weight_block) {
    const WeightBlock q = weight_block_at(arena, control, weight_block, scratch);
    const float factor = control.gradient_factor;
#pragma omp simd
    for (std::int64_t i = 0; i < kWeightBlockSize; ++i) step[i] = move_means(q, i, factor, s);
    sums[0] += weight_block_squares(q.w);
    sums[1] += weight_block_squares(step);
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
  const ArenaSpan span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
  const rules::StepValues s = values_of(arena, span, control);
  const float rate = s.lr * ratio_of(arena.chunks, chunk);
  float weights[kWeightBlockSize];
  for (std::int64_t weight_block = chunk.weight_block; weight_block < chunk.weight_block + chunk.weight_blocks;
       ++weight_block) {
    const std::int64_t at = weight_block * kWeightBlockSize;
    const WeightBlock q{weights_of(arena, weight_block, weights), nullptr, {arena.slots[0] + at, arena.slots[1] + at}};
#pragma omp simd
    for (std::int64_t i = 0; i < kWeightBlockSize; ++i) q.w[i] -= rate * step_of(q, i, s);
    store_compute(arena, span, weight_block, q.w);
  }
}

}  // namespace

void lamb_update(const Exec& exec, const UpdateArena& arena, const UpdateControl& control) {
  const SpanChunks& chunks = arena.chunks;
  const auto each = [&](const auto& function) {
    parallel_parts(chunks.count, exec.threads, [&](std::int64_t i) {
      const SpanChunk& chunk = chunks.list[i];
      const ArenaSpan& span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
      if (moves(arena, span, control.updates)) function(chunk, chunks.sums + 2 * i);
    });
  };
  each([&](const SpanChunk& chunk, double* sums) { lamb_moments(arena, control, chunk, sums); });
  each([&](const SpanChunk& chunk, double*) { lamb_weights(arena, control, chunk); });
}

}  // namespace bantam::kernels::cpu
