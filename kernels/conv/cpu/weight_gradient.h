// The gradient of a convolution's weights, on all threads: no patches are copied.
#pragma once

#include "bantam/kernels/common/exec.h"
#include "bantam/kernels/conv/weight_gradient_plan.h"

namespace bantam::kernels::cpu {

/// Float images, and dw in the contract's order.
struct WeightGradient {
  const float* x = nullptr;
  const float* dy = nullptr;  ///< pixels one after the other
  float* dw = nullptr;
  bool accumulate = false;  ///< dw is added to, not overwritten
};

/// Computes dw of the forward convolution `conv`. Workspace of plan_weight_gradient(conv). Nothing aliases. Bits depend
/// on shapes only.
void weight_gradient(const WindowConv& conv, const WeightGradient& operands, int threads, Workspace workspace);

}  // namespace bantam::kernels::cpu
