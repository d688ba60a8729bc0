// Adam (Kingma and Ba 2015), which is AdamW (Loshchilov and Hutter 2019) with decoupled decay; and LAMB (You et al.
// 2020), Adam's step scaled by norms. The slots are the means of gradients and of their squares.
#pragma once

#include "bantam/kernels/update/rules/element.h"

namespace bantam::kernels::rules {

template <class Math>
struct Adam : RuleOf<2, 2> {
  BANTAM_RULE static void move_means(Element<2>& e, float gradient, const StepValues& s) {
    float &m = e.slots[0], &v = e.slots[1];
    const float g = gradient + s.decay * e.w;
    v = s.beta2 * v + (1.0f - s.beta2) * g * g;
    m = s.beta1 * m + (1.0f - s.beta1) * g;
  }
  /// The step that the learning rate multiplies.
  BANTAM_RULE static float step(const Element<2>& e, const StepValues& s) {
    const float divisor = Math::root(e.slots[1] * s.correction2) + s.epsilon;
    return Math::quotient(e.slots[0] * s.correction1, divisor) + s.decoupled_decay * e.w;
  }
  BANTAM_RULE static void move(Element<2>& e, float gradient, const StepValues& s) {
    move_means(e, gradient, s);
    e.w -= s.lr * step(e, s);
  }
};

/// In two passes: `move_means` of a whole tensor, with the norms of weights and steps; then w -= lr·ratio·step.
template <class Math>
struct Lamb : Adam<Math> {
  static constexpr bool kByNorm = true;
};

}  // namespace bantam::kernels::rules
