// The arithmetic of one position, value or class, which both backends share. Formulas stand in the contracts.
#pragma once

#include <cmath>
#include <cstdint>

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE
#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/loss/loss_parts.h"
#include "bantam/kernels/loss/value_loss.h"

namespace bantam::kernels {

/// One position's target.
struct ClassTarget {
  std::int32_t label = 0;
  const float* probabilities = nullptr;  ///< (classes); null: the label's
  bool counts = true, valid = true;

  BANTAM_HOST_DEVICE ClassTarget(const ClassLossShape& s, const ClassLossInputs& in, std::int64_t row) {
    if (in.labels == nullptr) {
      probabilities = in.targets + row * s.classes;
      return;
    }
    label = in.labels[row];
    counts = !s.has_ignored || label != s.ignored;
    valid = label >= 0 && label < s.classes;
  }

  /// w_c·q_c.
  BANTAM_HOST_DEVICE float weighted(const ClassLossShape& s, const ClassLossInputs& in, std::int64_t c) const {
    const float t = probabilities != nullptr ? probabilities[c] : c == label ? 1.0f : 0.0f;
    const float q = (1.0f - s.smoothing) * t + s.smoothing / static_cast<float>(s.classes);
    return in.class_weights != nullptr ? in.class_weights[c] * q : q;
  }
};

/// Sums over a position's classes, relative to the largest logit `top`, so that nothing overflows or cancels.
struct ClassRowSums {
  float top = 0;
  float exp = 0;     ///< Σ e^(l - top)
  float weight = 0;  ///< Σ w·q
  float depth = 0;   ///< Σ w·q·(top - l), over the classes with a target
  float match = 0;   ///< Σ w·q·e^(l - top), over the same; with epsilon
};

/// Adds class c, of logit `l`, to all sums but `exp`.
BANTAM_HOST_DEVICE inline void add_class(const ClassLossShape& s, const ClassLossInputs& in, const ClassTarget& target,
                                         std::int64_t c, float l, ClassRowSums& sums) {
  const float wq = target.weighted(s, in, c);
  sums.weight += wq;
  if (wq == 0.0f) return;
  sums.depth += wq * (sums.top - l);
  if (s.epsilon != 0.0f) sums.match += wq * expf(l - sums.top);
}

/// A position's loss, and what the gradient of each of its logits needs.
struct ClassRow {
  float log_sum = 0, weight = 0, loss = 0, factor = 0;
  float epsilon = 0, match = 0;  ///< `match` is Σ w·q·p

  /// dx of a class with probability p: of -log p, and of epsilon·(1 - p).
  BANTAM_HOST_DEVICE float slope(float p, float wq) const {
    float slope = p * weight - wq;
    if (epsilon != 0.0f) slope += epsilon * p * (match - wq);
    return slope * factor;
  }
};

/// `scale` is the factor of the position's term in the loss, times the upstream gradient. `total` returns a sum of
/// add_class over all classes, of the caller's own part of it: where several threads share a position.
template <class Total>
BANTAM_HOST_DEVICE ClassRow finish_class_row(const ClassLossShape& s, const ClassTarget& target,
                                             const ClassRowSums& sums, float scale, const Total& total) {
  const float log_sum = logf(sums.exp), weight = total(sums.weight), depth = total(sums.depth);
  const float total_match = s.epsilon != 0.0f ? total(sums.match) : 0.0f;
  if (!target.valid) return {log_sum, weight, NAN, NAN};
  const float loss = weight * log_sum + depth;
  if (s.epsilon != 0.0f) {
    const float match = total_match / sums.exp;
    return {log_sum, weight, loss + s.epsilon * (weight - match), scale, s.epsilon, match};
  }
  if (s.gamma == 0.0f) return {log_sum, weight, loss, scale};
  // -log p of the label, and 1 - p without cancellation. L/(1 - p) goes to 1 where p goes to 1.
  const float surprise = weight != 0.0f ? loss / weight : 0.0f;
  const float rest = -expm1f(-surprise), p = expf(-surprise);
  const float power = powf(rest, s.gamma), ratio = rest > 0.0f ? surprise / rest : 1.0f;
  return {log_sum, weight, loss * power, scale * power * (1.0f + s.gamma * p * ratio)};
}

struct ValueTerm {
  float loss = 0, slope = 0;  ///< the term, and its derivative in x
  bool right = false;
};

/// log(1 + e^-|x|), the part of softplus without a corner.
BANTAM_HOST_DEVICE inline float soft_corner(float x) { return log1pf(expf(-fabsf(x))); }

/// 1/(1 + e^-x), exact at both ends.
BANTAM_HOST_DEVICE inline float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

BANTAM_HOST_DEVICE inline ValueTerm binary_cross_entropy_term(const ValueLossShape& s, float x, float target,
                                                              float positive_weight) {
  const float t = (1.0f - s.smoothing) * target + 0.5f * s.smoothing, corner = soft_corner(x);
  const float positive = positive_weight * t, negative = 1.0f - t;
  return {positive * (fmaxf(-x, 0.0f) + corner) + negative * (fmaxf(x, 0.0f) + corner),
          negative * logistic(x) - positive * logistic(-x), (x > 0.0f) == (target >= 0.5f)};
}

BANTAM_HOST_DEVICE inline ValueTerm binary_focal_term(const ValueLossShape& s, float x, float t) {
  const ValueTerm entropy = binary_cross_entropy_term({}, x, t, 1.0f);
  const float p = logistic(x), not_p = logistic(-x);
  const float miss = fmaxf(p * (1.0f - t) + not_p * t, 0.0f);  // 1 - p_t
  const float power = powf(miss, s.gamma), ratio = miss > 0.0f ? entropy.loss / miss : 1.0f;
  const float weight = s.alpha < 0.0f ? 1.0f : s.alpha * t + (1.0f - s.alpha) * (1.0f - t);
  return {weight * entropy.loss * power,
          weight * power * (entropy.slope + s.gamma * ratio * p * not_p * (1.0f - 2.0f * t)), entropy.right};
}

/// `at` is the value's place in its sample.
BANTAM_HOST_DEVICE inline ValueTerm value_term(const ValueLossShape& s, const ValueLossInputs& in, float x, float t,
                                               std::int64_t at) {
  const float d = x - t, size = fabsf(d), sign = copysignf(size > 0.0f ? 1.0f : size, d);  // 0 at 0, NaN for NaN
  switch (s.kind) {
    case ValueLossKind::squared:
      return {d * d, 2.0f * d, false};
    case ValueLossKind::absolute:
      return {size, sign, false};
    case ValueLossKind::huber:
      if (!(size > s.delta)) return {0.5f * d * d, d, false};
      return {s.delta * (size - 0.5f * s.delta), s.delta * sign, false};
    case ValueLossKind::binary_cross_entropy:
      return binary_cross_entropy_term(s, x, t,
                                       in.positive_weights != nullptr ? in.positive_weights[at % s.channels] : 1.0f);
    case ValueLossKind::binary_focal:
      break;
  }
  return binary_focal_term(s, x, t);
}

/// A class's term, and how it falls with p.
struct DiceTerm {
  float loss = 0;
  DiceGradient gradient;
};

BANTAM_HOST_DEVICE inline DiceTerm dice_term(const DiceSums& sums, float smooth, float scale) {
  const float over = 2.0f * sums.both + smooth, under = sums.predicted + sums.target + smooth;
  const float dice = over / under;
  return {1.0f - dice, {scale * dice / under, scale * 2.0f / under}};
}

/// The factor of a term in *loss, times the upstream gradient; `terms` of the sample count.
BANTAM_HOST_DEVICE inline float term_scale(const LossScale& scale, std::int64_t terms) {
  if (scale.upstream == nullptr) return 0.0f;
  const float sample = *scale.upstream / scale.divisor;
  return scale.mean ? sample / static_cast<float>(terms > 0 ? terms : 1) : sample;
}

/// A sample's loss, of its terms' sum.
BANTAM_HOST_DEVICE inline double sample_loss(const LossScale& scale, double sum, std::int64_t terms) {
  return scale.mean ? sum / static_cast<double>(terms > 0 ? terms : 1) : sum;
}

}  // namespace bantam::kernels
