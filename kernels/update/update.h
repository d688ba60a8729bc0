// The weight update over a flat parameter arena, in two passes: norm, finite check and bookkeeping; then unscale, clip,
// decay, update and cast. All state is on the device; the host never reads in a step. The rules, with their sources,
// are in rules/.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/update/narrow_gradients.h"
#include "bantam/kernels/update/partial_sums.h"
#include "bantam/kernels/update/rules.h"
#include "bantam/kernels/update/span_chunks.h"

namespace bantam::kernels {

/// Elements that belong to one parameter only: a span starts at a multiple of it, and is padded (with zeros) to one.
inline constexpr std::int64_t kWeightBlockSize = 128;

/// Groups of an arena.
inline constexpr std::int32_t kMostUpdateGroups = 128;

/// Values shared by a group of parameters; lives in device memory, rewritten by the host when a schedule moves.
struct UpdateGroup {
  float learning_rate = 1e-3f;
  float weight_decay =
      0.0f;              ///< sgd, adam, rmsprop: added to the gradient (L2); others: decoupled, times learning_rate
  float beta1 = 0.9f;    ///< adam, lamb, lion, adan; sgd, rmsprop, muon: momentum
  float beta2 = 0.999f;  ///< adam, lamb, lion, adan; rmsprop: alpha
  float epsilon = 1e-7f;
  float beta3 = 0.0f;  ///< adan; sgd_dampened: the dampening
};

/// One parameter's place in the arena, in device memory.
struct ArenaSpan {
  std::int32_t group = 0;  ///< index into the groups
  /// Not 0: neither counted in the norm nor updated; kFrozenForNow: while its group is (UpdateArena::frozen_updates).
  std::uint8_t frozen = 0;
  std::uint8_t compute_copy = 0;  ///< 1: the compute slot gets a cast copy of the new value
  std::uint16_t reserved = 0;
};

/// ArenaSpan::frozen of spans that move later.
inline constexpr std::uint8_t kFrozenForNow = 2;

/// Slots of a ring of metric sums: updates whose metrics the device holds.
inline constexpr int kMetricSlots = 512;

/// Scalars of the update, one struct in device memory.
struct UpdateControl {
  float loss_scale = 1.0f;           ///< gradients in the arena are multiplied by it
  std::int32_t growth_interval = 0;  ///< finite updates in a row before loss_scale doubles; 0: loss_scale is constant
  std::int32_t finite_in_a_row = 0;
  std::int32_t found_nonfinite = 0;   ///< of the last `begin_update`: that update is skipped
  std::int64_t updates = 0;           ///< updates done (Adam's t from `begin_update` on); skipped ones do not count
  std::int64_t skipped = 0;           ///< updates skipped because a gradient was not finite
  float clip_norm = 0.0f;             ///< global-norm clip; 0: none
  float gradient_norm = 0.0f;         ///< of the last unscaled gradient, before clipping
  float gradient_factor = 1.0f;       ///< what the update multiplies gradients by: clip / loss_scale
  std::int32_t skipped_in_a_row = 0;  ///< updates skipped since the last that was done
  std::int32_t metric_slot = 0;       ///< of this update, done or skipped, in a ring of kMetricSlots
  std::int32_t reserved = 0;
};

/// Says how an update ended.
enum class UpdateOutcome : std::int32_t {
  done,
  skipped,  ///< a gradient was not finite
  halted    ///< not tried, as too many before it were skipped (UpdateArena::halt_after); nothing counts it
};

/// The record of one update, beside its metrics.
struct UpdateRow {
  float learning_rate = 0.0f;  ///< of group 0
  float gradient_norm = 0.0f;  ///< unscaled, before clipping
  float loss_scale = 1.0f;     ///< that its gradients were multiplied by
  UpdateOutcome outcome = UpdateOutcome::done;
};

/// Most slots of a rule.
inline constexpr int kMostUpdateSlots = 4;

struct UpdateArena {
  std::int64_t weight_blocks = 0;                      ///< elements / kWeightBlockSize
  const std::int32_t* span_of_weight_block = nullptr;  ///< (weight blocks), device
  const ArenaSpan* spans = nullptr;                    ///< device
  const UpdateGroup* groups = nullptr;                 ///< (group_count), device
  std::int32_t group_count = 0;                        ///< at most kMostUpdateGroups
  const std::int64_t* frozen_updates = nullptr;        ///< (group_count), device: updates of no effect; null: 0
  /// (elements); where !keeps_masters of spans without compute copy only, the first of them from element first_master
  float* master = nullptr;
  std::int64_t first_master = 0;
  bool keeps_masters = true;            ///< false: weights of spans with a compute copy are stored there alone
  float* gradient = nullptr;            ///< written only where there are partial sums
  float* slots[kMostUpdateSlots] = {};  ///< the rule's state, (elements) each; those beyond its own are not read
  void* compute = nullptr;              ///< (elements) of compute_dtype; null where there is none
  DType compute_dtype = DType::float32;
  NarrowGradients narrow;       ///< spans whose gradient lies there as compute_dtype; none of them has partial sums
  SpanChunks chunks;            ///< lamb: of all spans that it updates
  float clip_value = 0.0f;      ///< largest magnitude of an unscaled gradient, cut after clip_norm scaled it; 0: none
  UpdateRow* rows = nullptr;    ///< (kMetricSlots), device: begin_update writes the update's row; null: nobody reads it
  std::int32_t halt_after = 0;  ///< skipped updates in a row after which all others are halted; 0: none are
};

/// Running statistics, float32: the next values, which forward passes move, and the current ones. (elements) each; 0
/// elements: none.
struct UpdateBuffers {
  std::int64_t elements = 0;
  float* next = nullptr;
  float* current = nullptr;
};

/// Scratch bytes of `begin_update`; depends on weight blocks and target only.
std::size_t begin_update_workspace_bytes(std::int64_t weight_blocks, DeviceKind target);

/// Adds up the partial sums, which are gradients of whole spans that are not frozen, into their places in
/// `gradient`. Writes found_nonfinite, gradient_norm (√Σg² / loss_scale over spans not frozen, fixed order) and
/// gradient_factor (1/loss_scale, times min(1, clip_norm/norm) where clip_norm > 0). Then counts the update: where
/// finite, updates + 1, and loss_scale·2 (at most 2^24) after growth_interval finite updates in a row; else skipped +
/// 1, and loss_scale/2 (at least 1) where growth_interval > 0. metric_slot increases by one either way. A halted update
/// sets found_nonfinite and moves metric_slot only. rows[metric_slot], of before, gets the update's row.
/// Throws Error where partial sums are not the gradient of a span.
using BeginUpdate = void(const Exec&, const UpdateArena&, const PartialSums&, UpdateControl* control, Workspace);

/// Follows `begin_update`. g = gradient·gradient_factor, cut to ±clip_value where that is above 0; t = updates less the
/// group's frozen_updates (kFrozenForNow spans move where t > 0); x̂ = x/(1 - x's beta^t). Slots, named in their order:
///  sgd           g += wd·w;  w -= lr·g
///  sgd_momentum  g += wd·w;  m = beta1·m + g (m = g at t = 1: the buffer starts at zero);  w -= lr·m
///  sgd_nesterov  the same m;  w -= lr·(g + beta1·m)
///  sgd_dampened  g += wd·w;  m = beta1·m + (1-beta3)·g, at t = 1 m = g;  w -= lr·m
///  adam          g += wd·w;  m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g²;  w -= lr·m̂/(√v̂ + epsilon)
///  adamw         w -= lr·wd·w first; then adam with wd = 0
///  rmsprop       g += wd·w;  m = beta2·m + (1-beta2)·g²;  w -= lr·g/(√m + epsilon)
///  …_momentum    the same m;  v = beta1·v + g/(√m + epsilon);  w -= lr·v
///  …_centered    the same m;  v = beta2·v + (1-beta2)·g;  w -= lr·g/(√max(0, m-v²) + epsilon)
///  …_centered_momentum  the same m and v;  b = beta1·b + g/(√max(0, m-v²) + epsilon);  w -= lr·b
///  lion          w -= lr·wd·w + lr·sign(beta1·m + (1-beta1)·g), sign(0) = 0;  then m = beta2·m + (1-beta2)·g
///  lamb          m and v of adam with wd = 0;  u = m̂/(√v̂ + epsilon) + wd·w;
///                w -= lr·r·u with r = |w|/|u| over a span, 1 where either norm is 0; norms in a fixed order
///  adan          m of adam with wd = 0;  v = beta2·v + (1-beta2)·d, d = g-p, 0 at t = 1;  n = beta3·n + (1-beta3)·a²,
///                a = g + beta2·d;  p = g;  w = (w - lr·(m̂ + beta2·v̂)/(√n̂ + epsilon)) / (1 + lr·wd)
/// then compute = cast(w) where the span has a copy, and current = next. Where found_nonfinite, next = current
/// and nothing else changes. Padding elements stay zero. Throws Error for more than kMostUpdateGroups groups.
using ApplyUpdate = void(const Exec&, UpdateKind, const UpdateArena&, const UpdateBuffers&,
                         const UpdateControl* control);

/// The end of an update whose weights a program's own rule has moved: compute = cast(w) where the span has a copy, and
/// current = next. Where found_nonfinite, next = current and nothing else changes.
using PublishWeights = void(const Exec&, const UpdateArena&, const UpdateBuffers&, const UpdateControl* control);

/// out = the gradients cut to ±clip_value, as they lie in the arena: float32, and still to be multiplied by
/// gradient_factor. Follows `begin_update`, for a program's own rules. None may be narrow.
using ClipGradients = void(const Exec&, const UpdateArena&, const UpdateControl* control, float* out);

BANTAM_DECLARE_KERNEL(BeginUpdate, begin_update);
BANTAM_DECLARE_KERNEL(ApplyUpdate, apply_update);
BANTAM_DECLARE_KERNEL(PublishWeights, publish_weights);
BANTAM_DECLARE_KERNEL(ClipGradients, clip_gradients);

}  // namespace bantam::kernels
