// Lion (Chen et al. 2023). The slot is the mean of gradients.
#pragma once

#include "bantam/kernels/update/rules/element.h"

namespace bantam::kernels::rules {

template <class Math>
struct Lion : RuleOf<1> {
  BANTAM_RULE static void move(Element<1>& e, float g, const StepValues& s) {
    float& m = e.slots[0];
    const float direction = s.beta1 * m + (1.0f - s.beta1) * g;
    m = s.beta2 * m + (1.0f - s.beta2) * g;
    const float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
    e.w -= s.lr * (sign + s.decoupled_decay * e.w);
  }
};

}  // namespace bantam::kernels::rules
