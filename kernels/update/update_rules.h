// Backends of the update share these rules: how sums are cut (every kWeightBlockSize elements only, so that the bits
// never change), groups' values, and the update's bookkeeping.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels {

/// CPU: weight blocks that one partial sum covers.
inline constexpr std::int64_t kWeightBlocksOfCpuPartial = 64;

/// CPU: number of partial sums.
constexpr std::int64_t gradient_sum_parts(std::int64_t weight_blocks) {
  return (weight_blocks + kWeightBlocksOfCpuPartial - 1) / kWeightBlocksOfCpuPartial;
}

/// CUDA: blocks that read gradients, one partial sum each. Enough to fill any GPU, few enough for one to add up.
constexpr std::int64_t gradient_sum_blocks(std::int64_t weight_blocks) {
  const std::int64_t blocks = (weight_blocks + 15) / 16;
  return blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks;
}

/// CUDA: most blocks that add up partial sums, with one partial Σg² each.
inline constexpr std::int64_t kMostSumBlocks = 512;

/// Weight blocks whose gradients are partial sums: [begin, end) for each array.
struct PartialSumWeightBlocks {
  struct Range {
    std::int32_t begin = 0, end = 0;
  };
  Range ranges[PartialSums::kMost];
  std::int32_t count = 0;
  std::int64_t first = 0;  ///< where the lowest range begins: most others lie before it

  BANTAM_HOST_DEVICE bool contain(std::int64_t weight_block) const {
    if (weight_block < first) return false;
    for (std::int32_t i = 0; i < count; ++i)
      if (weight_block >= ranges[i].begin && weight_block < ranges[i].end) return true;
    return false;
  }
};

/// Throws Error where an array of partial sums does not begin at a weight block of the arena's gradient, or ends beyond
/// it.
inline PartialSumWeightBlocks partial_sum_weight_blocks(const UpdateArena& arena, const PartialSums& partial) {
  PartialSumWeightBlocks weight_blocks;
  weight_blocks.first = arena.weight_blocks;
  for (std::int32_t i = 0; i < partial.count; ++i) {
    const PartialSums::Array& array = partial.arrays[i];
    const std::int64_t first = array.to - arena.gradient;
    const std::int64_t begin = first / kWeightBlockSize,
                       end = begin + (array.elements + kWeightBlockSize - 1) / kWeightBlockSize;
    if (first < 0 || first % kWeightBlockSize != 0 || end > arena.weight_blocks)
      throw Error("update: an array of partial sums is not the gradient of a span");
    weight_blocks.first = std::min(weight_blocks.first, begin);
    weight_blocks.ranges[weight_blocks.count++] = {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)};
  }
  return weight_blocks;
}

/// A group's t: updates since it moves, in `updates`, which may be 0 or less before that.
BANTAM_HOST_DEVICE inline std::int64_t updates_of_group(const UpdateArena& arena, std::int32_t group,
                                                        std::int64_t updates) {
  return arena.frozen_updates == nullptr ? updates : updates - arena.frozen_updates[group];
}

/// Whether a span moves in update `updates` (from 1).
BANTAM_HOST_DEVICE inline bool moves(const UpdateArena& arena, const ArenaSpan& span, std::int64_t updates) {
  return span.frozen == 0 || (span.frozen == kFrozenForNow && updates_of_group(arena, span.group, updates) > 0);
}

/// Whether a weight block's weights are in `master`, from element weight_block·kWeightBlockSize - first_master on; else
/// they are in `compute` alone. first_master is 0 where the arena keeps masters.
BANTAM_HOST_DEVICE inline bool has_master(const UpdateArena& arena, std::int64_t weight_block) {
  return weight_block * kWeightBlockSize >= arena.first_master;
}

/// Throws Error where an arena has more groups than kernels hold.
inline void require_group_count(const UpdateArena& arena) {
  if (arena.group_count > kMostUpdateGroups)
    throw Error("update: " + std::to_string(arena.group_count) + " groups; at most " +
                std::to_string(kMostUpdateGroups) + " are possible");
}

/// Largest magnitude of a gradient as it lies in the arena, of one that is cut.
BANTAM_HOST_DEVICE inline float gradient_limit(const UpdateArena& arena, float gradient_factor) {
  return arena.clip_value / gradient_factor;
}

/// lamb's factor of a span's step, of the sums of squares of its weights and of its step.
BANTAM_HOST_DEVICE inline float trust_ratio(double weights, double step) {
  return weights > 0 && step > 0 ? static_cast<float>(sqrt(weights / step)) : 1.0f;
}

/// A group's values in its update t, as `Rule` reads them with `Math`. `decoupled`: UpdateRuleFacts::decoupled_decay.
template <class Rule, class Math>
BANTAM_RULE inline rules::StepValues step_values(bool decoupled, const UpdateGroup& group, std::int64_t t) {
  rules::StepValues values{.lr = group.learning_rate,
                           .decay = decoupled ? 0.0f : group.weight_decay,
                           .decoupled_decay = decoupled ? group.weight_decay : 0.0f,
                           .beta1 = group.beta1,
                           .beta2 = group.beta2,
                           .beta3 = group.beta3,
                           .epsilon = group.epsilon,
                           .one = 1.0f,
                           .first = t <= 1};
  if constexpr (Rule::kCorrections > 0) values.correction1 = Math::bias_correction(group.beta1, t);
  if constexpr (Rule::kCorrections > 1) values.correction2 = Math::bias_correction(group.beta2, t);
  if constexpr (Rule::kCorrections > 2) values.correction3 = Math::bias_correction(group.beta3, t);
  return values;
}

/// `total` is Σg² over gradients still multiplied by the loss scale.
BANTAM_HOST_DEVICE inline void store_gradient_statistics(double total, UpdateControl& control) {
  const double scale = control.loss_scale;
  const double norm = sqrt(total) / scale;
  const bool finite = total - total == 0;  // inf - inf and NaN - NaN are NaN
  double factor = 1.0 / scale;
  if (finite && control.clip_norm > 0 && norm > control.clip_norm) factor *= control.clip_norm / norm;
  control.found_nonfinite = finite ? 0 : 1;
  control.gradient_norm = static_cast<float>(norm);
  control.gradient_factor = static_cast<float>(factor);
}

/// Whether an update after those that `control` counts is halted.
BANTAM_HOST_DEVICE inline bool halts(const UpdateArena& arena, const UpdateControl& control) {
  return arena.halt_after > 0 && control.skipped_in_a_row >= arena.halt_after;
}

/// Counters and loss scale for an update, done or skipped.
BANTAM_HOST_DEVICE inline void advance_update_control(UpdateControl& control) {
  const bool dynamic = control.growth_interval > 0;
  control.metric_slot = (control.metric_slot + 1) % kMetricSlots;
  if (control.found_nonfinite) {
    control.skipped += 1;
    control.skipped_in_a_row += 1;
    control.finite_in_a_row = 0;
    if (dynamic) control.loss_scale = control.loss_scale * 0.5f < 1.0f ? 1.0f : control.loss_scale * 0.5f;
    return;
  }
  control.updates += 1;
  control.skipped_in_a_row = 0;
  if (!dynamic) return;
  control.finite_in_a_row += 1;
  if (control.finite_in_a_row < control.growth_interval) return;
  control.finite_in_a_row = 0;
  control.loss_scale = control.loss_scale * 2.0f > 16777216.0f ? 16777216.0f : control.loss_scale * 2.0f;
}

/// Returns the learning rate for an update's row; loaded before Σg² is known, so that nothing waits for it.
BANTAM_HOST_DEVICE inline float noted_learning_rate(const UpdateArena& arena) {
  return arena.rows != nullptr && arena.group_count > 0 ? arena.groups[0].learning_rate : 0.0f;
}

/// All that begin_update writes once Σg² is known.
BANTAM_HOST_DEVICE inline void finish_begin_update(double total, float learning_rate, const UpdateArena& arena,
                                                   UpdateControl& control) {
  const bool halted = halts(arena, control);
  const std::int32_t slot = control.metric_slot;
  const float loss_scale = control.loss_scale;
  store_gradient_statistics(total, control);
  if (halted) {
    control.found_nonfinite = 1;
    control.metric_slot = (slot + 1) % kMetricSlots;
  } else {
    advance_update_control(control);
  }
  if (arena.rows == nullptr) return;
  arena.rows[slot] = {.learning_rate = learning_rate,
                      .gradient_norm = control.gradient_norm,
                      .loss_scale = loss_scale,
                      .outcome = halted                         ? UpdateOutcome::halted
                                 : control.found_nonfinite != 0 ? UpdateOutcome::skipped
                                                                : UpdateOutcome::done};
}

}  // namespace bantam::kernels
