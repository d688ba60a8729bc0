// A weight block of the arena as the CPU's rules see it: its gradients, and the values of its group.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/update/update.h"
#include "bantam/kernels/update/update_rules.h"

namespace bantam::kernels::cpu {

constexpr std::int64_t kLanesOfSum = 8;

/// Σx² of a weight block in double: no finite float overflows it, so it is finite exactly where every x is. In a fixed
/// order.
inline double weight_block_sum(const float* x) {
  double lanes[kLanesOfSum] = {};
  for (std::int64_t i = 0; i < kWeightBlockSize; i += kLanesOfSum) {
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

/// Σx² for norms, of values whose squares are floats: four terms of each of 32 lanes in float, then in double.
inline double weight_block_squares(const float* x) {
  constexpr std::int64_t kLanes = 32;
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < kWeightBlockSize; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(lanes[lane]);
  return sum;
}

/// A weight block's gradients where they lie, or made wide in `values` where they are narrow.
inline const float* gradients_of(const UpdateArena& arena, std::int64_t weight_block,
                                 float (&values)[kWeightBlockSize]) {
  const std::int64_t begin = arena.narrow.begin_of(weight_block);
  if (begin < 0) return arena.gradient + weight_block * kWeightBlockSize;
  const void* place = arena.gradient + begin * kWeightBlockSize;
  widen(arena.compute_dtype, element(place, arena.compute_dtype, (weight_block - begin) * kWeightBlockSize), values,
        kWeightBlockSize);
  return values;
}

/// Returns the gradients cut to [-limit, limit], in `values`.
inline const float* gradients_within(const UpdateArena& arena, std::int64_t weight_block, float limit,
                                     float (&values)[kWeightBlockSize]) {
  const float* gradient = gradients_of(arena, weight_block, values);
#pragma omp simd
  for (std::int64_t i = 0; i < kWeightBlockSize; ++i) values[i] = std::min(std::max(gradient[i], -limit), limit);
  return values;
}

/// Room for what lies in memory in another form than a rule reads it.
struct WeightBlockScratch {
  float gradients[kWeightBlockSize], weights[kWeightBlockSize];
};

/// A weight block's weights where they lie, or made wide in `values` where they have no master.
inline float* weights_of(const UpdateArena& arena, std::int64_t weight_block, float (&values)[kWeightBlockSize]) {
  const std::int64_t at = weight_block * kWeightBlockSize;
  if (has_master(arena, weight_block)) return arena.master + (at - arena.first_master);
  widen(arena.compute_dtype, element(arena.compute, arena.compute_dtype, at), values, kWeightBlockSize);
  return values;
}

/// The arrays that a rule moves, kWeightBlockSize elements of each. Slots that the rule does not keep may be null.
struct WeightBlock {
  float* w;
  const float* gradient;  // to be multiplied by gradient_factor
  float* slots[kMostUpdateSlots];
};

/// Collects one block of kWeightBlockSize elements as floats; narrow or clipped values are copied to the caller's
/// buffers.
inline WeightBlock weight_block_at(const UpdateArena& arena, const UpdateControl& control, std::int64_t weight_block,
                                   WeightBlockScratch& scratch) {
  WeightBlock q{.w = weights_of(arena, weight_block, scratch.weights),
                .gradient = arena.clip_value > 0
                                ? gradients_within(arena, weight_block, gradient_limit(arena, control.gradient_factor),
                                                   scratch.gradients)
                                : gradients_of(arena, weight_block, scratch.gradients),
                .slots = {}};
  for (int i = 0; i < kMostUpdateSlots; ++i)
    q.slots[i] = arena.slots[i] == nullptr ? nullptr : arena.slots[i] + weight_block * kWeightBlockSize;
  return q;
}

/// Where the span has a compute copy, or its weights lie there alone, casts the weight block's new weights into it; `w`
/// is what weights_of returned.
inline void store_compute(const UpdateArena& arena, ArenaSpan span, std::int64_t weight_block, const float* w) {
  if (arena.compute == nullptr || !span.compute_copy) return;
  const std::int64_t at = weight_block * kWeightBlockSize;
  narrow(arena.compute_dtype, w, element(arena.compute, arena.compute_dtype, at), kWeightBlockSize);
}

/// The arithmetic of rules on the CPU. Their files are compiled with -fno-math-errno and -fno-trapping-math, which
/// change no value: with them GCC vectorises roots and selects.
struct CpuMath {
  static float root(float x) { return std::sqrt(x); }
  /// Where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
  static float quotient(float dividend, float divisor) {
    const float ratio = dividend / divisor;
    return divisor != 0 ? ratio : 0.0f;
  }
  static float larger(float a, float b) { return std::max(a, b); }
  /// b·c is rounded before the sum: `one` is in the fused product.
  static float plus_product(const rules::StepValues& s, float a, float b, float c) { return s.one * a + b * c; }
  /// By expm1, which keeps its digits where beta^t is close to 1.
  static float bias_correction(float beta, std::int64_t t) {
    return static_cast<float>(-1.0 / std::expm1(static_cast<double>(t) * std::log(static_cast<double>(beta))));
  }
};

/// Element i of a weight block, as rules take it, and the way back. Loops that are marked `omp simd` call functions
/// that call these, without a loop over slots: else the element would have an address, and GCC would not vectorise.
template <int kSlots>
[[gnu::always_inline]] inline rules::Element<kSlots> load_element(const WeightBlock& q, std::int64_t i) {
  rules::Element<kSlots> e;
  e.w = q.w[i];
  static_assert(kSlots <= kMostUpdateSlots && kMostUpdateSlots == 4);
  if constexpr (kSlots > 0) e.slots[0] = q.slots[0][i];
  if constexpr (kSlots > 1) e.slots[1] = q.slots[1][i];
  if constexpr (kSlots > 2) e.slots[2] = q.slots[2][i];
  if constexpr (kSlots > 3) e.slots[3] = q.slots[3][i];
  return e;
}
template <int kSlots>
[[gnu::always_inline]] inline void store_slots(const WeightBlock& q, std::int64_t i, const rules::Element<kSlots>& e) {
  if constexpr (kSlots > 0) q.slots[0][i] = e.slots[0];
  if constexpr (kSlots > 1) q.slots[1][i] = e.slots[1];
  if constexpr (kSlots > 2) q.slots[2][i] = e.slots[2];
  if constexpr (kSlots > 3) q.slots[3][i] = e.slots[3];
}

}  // namespace bantam::kernels::cpu
