// Stochastic gradient descent: plain; with momentum; Nesterov's (Sutskever et al. 2013) and dampened momentum, both in
// PyTorch's form. The slot is the velocity.
#pragma once

#include "bantam/kernels/update/rules/element.h"

namespace bantam::kernels::rules {

template <class Math>
struct Sgd : RuleOf<0> {
  BANTAM_RULE static void move(Element<0>& e, float g, const StepValues& s) { e.w -= s.lr * (g + s.decay * e.w); }
};

template <class Math, bool kNesterov>
struct Momentum : RuleOf<1> {
  BANTAM_RULE static void move(Element<1>& e, float gradient, const StepValues& s) {
    float& m = e.slots[0];
    const float g = gradient + s.decay * e.w;
    m = s.beta1 * m + g;
    e.w -= s.lr * (kNesterov ? Math::plus_product(s, g, s.beta1, m) : m);
  }
};
template <class Math>
using SgdMomentum = Momentum<Math, false>;
template <class Math>
using SgdNesterov = Momentum<Math, true>;

/// beta3 is the dampening: the share of each gradient but the first that stays out of the velocity.
template <class Math>
struct SgdDampened : RuleOf<1> {
  BANTAM_RULE static void move(Element<1>& e, float gradient, const StepValues& s) {
    float& m = e.slots[0];
    const float g = gradient + s.decay * e.w, undamped = s.first ? 1.0f : 1.0f - s.beta3;
    m = s.beta1 * m + undamped * g;
    e.w -= s.lr * m;
  }
};

}  // namespace bantam::kernels::rules
