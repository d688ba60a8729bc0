// Shapes, scratch memory and weight gradient of a 2-D convolution, which the transposed convolution uses, too.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::ops {

/// The shape for the kernels on `in` (batch, H, W, C_in). Throws ShapeError where the window does not fit.
kernels::Conv2dShape conv2d_shape(const Shape& in, std::int64_t filters, const Window2d& window, std::int64_t groups);
/// The shape for the kernels on x with a weight (C_out, kH, kW, C_in/groups), which sets the window's kernel. Throws
/// ShapeError and DTypeError where x and w do not fit.
kernels::Conv2dShape conv2d_shape(const Tensor& x, const Tensor& w, Window2d window, std::int64_t groups);

/// Scratch memory of one pass.
Scratch conv2d_scratch(const Context& context, const kernels::Conv2dShape& shape, DType dtype,
                       kernels::Conv2dPass pass);

/// Added to a convolution that is one GEMM; either may be undefined.
struct Conv2dAddends {
  Tensor bias;      ///< (C_out)
  Tensor residual;  ///< like the result
};

/// Records the backward of the convolution y of x with w, for an op that computes it together with what follows: of `y`
/// only identity, shape and type matter.
void record_conv2d(const Context& context, Tensor& y, const kernels::Conv2dShape& shape, const Tensor& x,
                   const Tensor& w, const Conv2dAddends& addends = {});

/// A convolution's input, and the gradient of its output.
struct Conv2dBackward {
  const Tensor& x;
  const Tensor& dy;
};
/// Adds the gradient of the weight `w`, which is wanted, to the store; it may stay narrow until the update
/// (partial_gradients.h).
void conv2d_weight_gradient(const Context& context, const kernels::Conv2dShape& shape, const Conv2dBackward& operands,
                            const Tensor& w, GradientStore& store);

}  // namespace bantam::ops
