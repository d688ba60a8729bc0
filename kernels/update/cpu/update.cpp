// The weight update on the CPU: weight block by weight block, each a vectorised loop of constant length.

#include "bantam/kernels/update/update.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/update/cpu/lamb.h"
#include "bantam/kernels/update/cpu/weight_blocks.h"
#include "bantam/kernels/update/update_rules.h"

namespace bantam::kernels::cpu {
namespace {

template <class Rule>
[[gnu::always_inline]] inline void move_weight(const WeightBlock& q, std::int64_t i, float factor,
                                               const rules::StepValues& s) {
  rules::Element<Rule::kSlots> e = load_element<Rule::kSlots>(q, i);
  Rule::move(e, q.gradient[i] * factor, s);
  store_slots(q, i, e);
  q.w[i] = e.w;
}

template <class Rule>
void move_weight_block(const rules::StepValues s, float factor, const WeightBlock q) {
#pragma omp simd
  for (std::int64_t i = 0; i < kWeightBlockSize; ++i) move_weight<Rule>(q, i, factor, s);
}

/// Moves weight blocks [begin, end).
template <class Rule>
void move_weight_blocks(const UpdateArena& arena, const UpdateControl& control, bool decoupled, std::int64_t begin,
                        std::int64_t end) {
  std::int32_t group = -1;
  rules::StepValues values{};
  WeightBlockScratch scratch;
  for (std::int64_t weight_block = begin; weight_block < end; ++weight_block) {
    const ArenaSpan span = arena.spans[arena.span_of_weight_block[weight_block]];
    if (!moves(arena, span, control.updates)) continue;
    if (span.group != group) {
      group = span.group;
      values =
          step_values<Rule, CpuMath>(decoupled, arena.groups[group], updates_of_group(arena, group, control.updates));
    }
    const WeightBlock q = weight_block_at(arena, control, weight_block, scratch);
    move_weight_block<Rule>(values, control.gradient_factor, q);
    store_compute(arena, span, weight_block, q.w);
  }
}

using MoveWeightBlocks = void (*)(const UpdateArena&, const UpdateControl&, bool, std::int64_t, std::int64_t);

template <class Rule>
constexpr MoveWeightBlocks mover() {
  if constexpr (Rule::kByNorm) {
    return nullptr;
  } else {
    return move_weight_blocks<Rule>;
  }
}

/// The function of each UpdateKind that moves weights; null: the kind's rule needs norms and runs in passes of its own.
constexpr MoveWeightBlocks kMovers[] = {
#define BANTAM_MOVER(name, Rule, decoupled) mover<rules::Rule<CpuMath>>(),
    BANTAM_UPDATE_RULES(BANTAM_MOVER)
#undef BANTAM_MOVER
};

void publish_buffers(const UpdateBuffers& buffers, bool skip) {
  if (buffers.elements > 0)
    std::copy_n(skip ? buffers.current : buffers.next, buffers.elements, skip ? buffers.next : buffers.current);
}

}  // namespace

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl* control,
                  Workspace workspace) {
  (void)partial_sum_weight_blocks(arena, partial);  // throws where one belongs elsewhere
  add_up_parts(exec, partial);
  double* partials = static_cast<double*>(workspace.data);
  const std::int64_t parts = gradient_sum_parts(arena.weight_blocks);
  parallel_parts(parts, exec.threads, [&](std::int64_t part) {
    const std::int64_t end = std::min(arena.weight_blocks, (part + 1) * kWeightBlocksOfCpuPartial);
    double sum = 0;
    float values[kWeightBlockSize];
    for (std::int64_t weight_block = part * kWeightBlocksOfCpuPartial; weight_block < end; ++weight_block) {
      if (!moves(arena, arena.spans[arena.span_of_weight_block[weight_block]], control->updates + 1)) continue;
      sum += weight_block_sum(gradients_of(arena, weight_block, values));
    }
    partials[part] = sum;
  });
  double total = 0;
  for (std::int64_t part = 0; part < parts; ++part) total += partials[part];
  finish_begin_update(total, noted_learning_rate(arena), arena, *control);
}

void apply_update(const Exec& exec, UpdateKind kind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl* control) {
  require_group_count(arena);
  const bool skip = control->found_nonfinite != 0;
  publish_buffers(buffers, skip);
  if (skip) return;
  const MoveWeightBlocks move = kMovers[static_cast<int>(kind)];
  if (move == nullptr) return lamb_update(exec, arena, *control);
  const bool decoupled = facts_of(kind).decoupled_decay;
  parallel_ranges(arena.weight_blocks, kWeightBlocksOfCpuPartial, exec.threads,
                  [&](std::int64_t begin, std::int64_t end) { move(arena, *control, decoupled, begin, end); });
}

void publish_weights(const Exec& exec, const UpdateArena& arena, const UpdateBuffers& buffers,
                     const UpdateControl* control) {
  const bool skip = control->found_nonfinite != 0;
  publish_buffers(buffers, skip);
  if (skip || arena.compute == nullptr) return;
  parallel_ranges(arena.weight_blocks, kWeightBlocksOfCpuPartial, exec.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t weight_block = begin; weight_block < end; ++weight_block)
                      store_compute(arena, arena.spans[arena.span_of_weight_block[weight_block]], weight_block,
                                    arena.master + weight_block * kWeightBlockSize);
                  });
}

void clip_gradients(const Exec& exec, const UpdateArena& arena, const UpdateControl* control, float* out) {
  const float limit = gradient_limit(arena, control->gradient_factor);
  parallel_ranges(arena.weight_blocks, kWeightBlocksOfCpuPartial, exec.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    float values[kWeightBlockSize];
                    for (std::int64_t weight_block = begin; weight_block < end; ++weight_block)
                      std::copy_n(gradients_within(arena, weight_block, limit, values), kWeightBlockSize,
                                  out + weight_block * kWeightBlockSize);
                  });
}

}  // namespace bantam::kernels::cpu
