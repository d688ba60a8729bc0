// Adan (Xie et al. 2022), in the form of the authors' code: betas are shares that stay, as Adam's. The slots are the
// means of gradients, of their differences, and of squares of the gradient extrapolated by the difference; and the
// gradient before.
#pragma once

#include "bantam/kernels/update/rules/element.h"

namespace bantam::kernels::rules {

template <class Math>
struct Adan : RuleOf<4, 3> {
  BANTAM_RULE static void move(Element<4>& e, float g, const StepValues& s) {
    float &m = e.slots[0], &v = e.slots[1], &n = e.slots[2], &before = e.slots[3];
    const float has_before = s.first ? 0.0f : 1.0f;
    const float difference = has_before * (g - before), ahead = g + s.beta2 * difference;
    before = g;
    m = s.beta1 * m + (1.0f - s.beta1) * g;
    v = s.beta2 * v + (1.0f - s.beta2) * difference;
    n = s.beta3 * n + (1.0f - s.beta3) * ahead * ahead;
    const float direction = m * s.correction1 + s.beta2 * (v * s.correction2);
    const float step = Math::quotient(direction, Math::root(n * s.correction3) + s.epsilon);
    e.w = (e.w - s.lr * step) / (1.0f + s.lr * s.decoupled_decay);
  }
};

}  // namespace bantam::kernels::rules
