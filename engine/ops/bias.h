// The backward of a bias and an activation, which ops that compute both with something else record, too.
#pragma once

#include "bantam/base/activation.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/elementwise/bias_activation.h"

namespace bantam::ops {

/// The shape for the kernels of x (…, C) and a bias (C), or of more of x's last axes. Throws, prefixed by `op`,
/// DeviceError where one is elsewhere, ShapeError and DTypeError where they do not fit.
kernels::BiasShape bias_shape(const Context& context, const char* op, const Tensor& x, const Tensor& b);

/// The one tensor that backward reads after a forward with an activation: which one depends on the activation. None
/// where masks_bias_gradient is true.
struct SavedActivation {
  Tensor mask;        ///< where the activation is piecewise, and y is not kept
  SavedTensor input;  ///< x, where the gradient reads its input
  SavedTensor output;
};

/// Whether the gradient of f(x + b) comes multiplied by f' (NodePlan::gradient_is_masked).
bool masks_bias_gradient(const Context& context, ActivationFunction f);

/// Records the backward of y = f(x + b), of which `x` has the identity.
void record_bias_activation(const Context& context, Tensor& y, const ValueRef& x, const Tensor& b, ActivationFunction f,
                            const SavedActivation& saved);

}  // namespace bantam::ops
