// RMSprop (Hinton 2012; centered: Graves 2013) in PyTorch's form. The slots: the mean of squared gradients; where it is
// centered, the mean of gradients; with momentum, the velocity. beta2 is alpha, beta1 the momentum.
#pragma once

#include "bantam/kernels/update/rules/element.h"

namespace bantam::kernels::rules {

template <class Math, bool kCentered, bool kMomentum>
struct RmsPropOf : RuleOf<1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0)> {
  static constexpr int kVelocity = kCentered ? 2 : 1;

  BANTAM_RULE static void move(Element<RmsPropOf::kSlots>& e, float gradient, const StepValues& s) {
    const float g = gradient + s.decay * e.w;
    float square = e.slots[0] = s.beta2 * e.slots[0] + (1.0f - s.beta2) * g * g;
    if constexpr (kCentered) {
      float& mean = e.slots[1];
      mean = s.beta2 * mean + (1.0f - s.beta2) * g;
      square = Math::larger(square - mean * mean, 0.0f);
    }
    float step = Math::quotient(g, Math::root(square) + s.epsilon);
    if constexpr (kMomentum) step = e.slots[kVelocity] = s.beta1 * e.slots[kVelocity] + step;
    e.w -= s.lr * step;
  }
};
template <class Math>
using RmsProp = RmsPropOf<Math, false, false>;
template <class Math>
using RmsPropMomentum = RmsPropOf<Math, false, true>;
template <class Math>
using RmsPropCentered = RmsPropOf<Math, true, false>;
template <class Math>
using RmsPropCenteredMomentum = RmsPropOf<Math, true, true>;

}  // namespace bantam::kernels::rules
