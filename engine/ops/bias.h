// The backward of a bias and an activation, which ops that compute both with something else record, too.
#pragma once

#include "bantam/base/activation.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/elementwise/bias_activation.h"

namespace bantam::ops {

/// The shape for the kernels of x (…, C) and a bias (C), or of more of x's last axes. Throws, prefixed by `op`,
/// DeviceError where one is elsewhere, ShapeError and DTypeError where they do not fit.
kernels::BiasShape bias_shape(const Context& context, const char* op, const Tensor& x, const Tensor& b);

/// Adds the gradient of a bias to the store: the sums of dy over the axes that it does not have. Does nothing where it
/// is undefined or nobody wants its gradient.
void add_bias_gradient(const Context& context, const Tensor& b, const Tensor& dy, GradientStore& store);

/// Throws, prefixed by `op`, DeviceError, ShapeError or DTypeError where a bias is not (channels) of y, or a residual
/// not like y. Either may be undefined.
void check_addends(const Context& context, const char* op, const Tensor& y, const Tensor& b, const Tensor& residual);

/// Memory for the output of an op that adds a residual, which may be undefined; that of the residual where nobody reads
/// the output.
inline Tensor output_of(const Context& context, const Shape& shape, DType dtype, const Tensor& residual) {
  const bool stands_in = context.output_unused() && residual.defined();
  return stands_in ? residual.view(residual.shape()) : context.allocate(shape, dtype);
}

/// The memory of an operand that may be undefined.
inline const void* data_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.data() : nullptr; }

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
