// Convolution: backward keeps x (or its recipe) and reads w from the arena.
#include "bantam/engine/ops/conv2d.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/bias.h"
#include "bantam/engine/ops/masked_activation.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/pointwise_norm.h"
#include "bantam/engine/ops/statistics_after.h"
#include "bantam/engine/ops/window.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/pointwise/masked_gradient.h"

namespace bantam::ops {
namespace {

using kernels::Conv2dPass;
using kernels::Conv2dShape;

Shape output_shape(const Conv2dShape& shape) { return {shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}; }

Tensor forward(const Context& context, const Conv2dShape& shape, const Tensor& x, const Tensor& w) {
  Tensor y = context.allocate(output_shape(shape), x.dtype());
  if (context.output_unused()) return y;
  StatisticsAfter statistics(context, shape.out_channels);
  if (statistics.output() != nullptr) {
    const Scratch scratch =
        context.scratch(kernels::conv2d_statistics_workspace_bytes(shape, x.dtype(), context.device.kind));
    BANTAM_KERNEL(context.exec, conv2d_forward_statistics, shape, x.dtype(), x.data(), w.data(), y.data(),
                  *statistics.output(), scratch.get());
  } else {
    const Scratch scratch = conv2d_scratch(context, shape, x.dtype(), Conv2dPass::forward);
    BANTAM_KERNEL(context.exec, conv2d_forward, shape, x.dtype(), x.data(), w.data(), y.data(), scratch.get());
  }
  statistics.attach(y);
  return y;
}

/// y = x·wᵀ + bias + residual, for a convolution that is one GEMM.
Tensor forward_with_addends(const Context& context, const Conv2dShape& shape, const Tensor& x, const Tensor& w,
                            const Conv2dAddends& addends) {
  Tensor y = output_of(context, output_shape(shape), x.dtype(), addends.residual);
  check_addends(context, "conv2d", y, addends.bias, addends.residual);
  if (context.output_unused()) return y;
  const Scratch scratch = conv2d_scratch(context, shape, x.dtype(), Conv2dPass::forward);
  BANTAM_KERNEL(context.exec, matmul, kernels::pointwise_matmul(shape, Conv2dPass::forward), x.dtype(), x.data(),
                w.data(),
                {.data = y.data(),
                 .dtype = x.dtype(),
                 .bias = data_or_null(addends.bias),
                 .residual = data_or_null(addends.residual)},
                scratch.get());
  return y;
}

/// The bits of relu' of a tensor that relu wrote.
Tensor mask_of(const Context& context, const Tensor& x) {
  Tensor mask = allocate_mask(context, x.elements());
  const Tensor same = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(context.exec, masked_activation_forward, {Activation::relu}, x.elements(), x.dtype(), x.data(), nullptr,
                same.data(), mask.as<std::uint8_t>());
  return mask;
}

Tensor input_gradient(const Context& context, const Conv2dShape& shape, const Tensor& dy, const Tensor& w) {
  Tensor dx = context.allocate({shape.batch, shape.in_h, shape.in_w, shape.in_channels}, dy.dtype());
  const Scratch scratch = conv2d_scratch(context, shape, dy.dtype(), Conv2dPass::grad_input);
  BANTAM_KERNEL(context.exec, conv2d_grad_input, shape, dy.dtype(), dy.data(), w.data(), dx.data(), scratch.get());
  return dx;
}

/// The gradient of a SumActivation, of which this is the last part and `addend` what others contributed: multiplied by
/// relu', with its sums.
Gradient masked_input_gradient(const Context& context, const Conv2dShape& shape, const Tensor& dy, const Tensor& w,
                               const Tensor& mask, const Tensor& addend, bool observed) {
  Tensor unmasked;
  if (observed) {
    unmasked = input_gradient(context, shape, dy, w);
    BANTAM_KERNEL(context.exec, add, unmasked.elements(), dy.dtype(), unmasked.data(), addend.data(), unmasked.data());
  }
  const kernels::PointwiseShape product = kernels::pointwise_shape(shape);
  const Tensor sums = context.allocate({shape.in_channels}, DType::float32);
  Tensor dz = reuse_or_allocate(context, addend);
  const Scratch scratch =
      context.scratch(kernels::masked_gradient_workspace_bytes(product, dy.dtype(), context.device.kind));
  BANTAM_KERNEL(context.exec, masked_gradient, product, dy.dtype(), dy.data(), w.data(), addend.data(),
                mask.as<std::uint8_t>(), dz.data(), sums.as<float>(), scratch.get());
  return Gradient::of_sum(std::move(dz), sums, std::move(unmasked));
}

}  // namespace

Conv2dShape conv2d_shape(const Shape& in, std::int64_t filters, const Window2d& window, std::int64_t groups) {
  auto shape = window_shape<Conv2dShape>("conv2d", in, window);
  shape.in_channels = in[3], shape.out_channels = filters, shape.groups = groups;
  return shape;
}

Conv2dShape conv2d_shape(const Tensor& x, const Tensor& w, Window2d window, std::int64_t groups) {
  check_image("conv2d", x.shape());
  if (w.shape().rank() != 4)
    throw ShapeError(
        fmt::format("conv2d: expected a weight (C_out, kH, kW, C_in/groups), got {}", to_string(w.shape())));
  const std::int64_t channels = x.shape()[3], filters = w.shape()[0];
  if (groups < 1 || channels % groups != 0 || filters % groups != 0)
    throw ShapeError(
        fmt::format("conv2d: {} input and {} output channels do not divide into {} groups", channels, filters, groups));
  if (w.shape()[3] * groups != channels)
    throw ShapeError(
        fmt::format("conv2d: x {} and weight {} do not fit: expected {} input channels a group, the weight has {}",
                    to_string(x.shape()), to_string(w.shape()), channels / groups, w.shape()[3]));
  if (x.dtype() != w.dtype())
    throw DTypeError(fmt::format("conv2d: x is {} and the weight {}", to_string(x.dtype()), to_string(w.dtype())));
  window.kernel = {w.shape()[1], w.shape()[2]};
  return conv2d_shape(x.shape(), filters, window, groups);
}

Scratch conv2d_scratch(const Context& context, const Conv2dShape& shape, DType dtype, Conv2dPass pass) {
  return context.scratch(kernels::conv2d_workspace_bytes(shape, dtype, pass, context.device.kind));
}

void conv2d_weight_gradient(const Context& context, const Conv2dShape& shape, const Conv2dBackward& operands,
                            const Tensor& w, GradientStore& store) {
  FloatGradient dw(context, w, store);
  const DType dtype = operands.x.dtype();
  const Scratch scratch = conv2d_scratch(context, shape, dtype, Conv2dPass::grad_weight);
  PartialGradients* gradients = context.step.gradients;
  const bool may_stay_narrow = gradients != nullptr && gradients->accepts_narrow(context, w);
  bool narrow = false;
  BANTAM_KERNEL(context.exec, conv2d_grad_weight, shape, dtype, operands.x.data(), operands.dy.data(),
                {.dw = dw.data, .accumulate = dw.accumulate, .narrow = may_stay_narrow ? &narrow : nullptr},
                scratch.get());
  if (narrow) gradients->keep_narrow(context, *w.parameter());
  dw.add_to(context, w, store);
}

void record_conv2d(const Context& context, Tensor& y, const Conv2dShape& shape, const Tensor& x, const Tensor& w,
                   const Conv2dAddends& addends) {
  const SumActivation* sum = context.plan().masks_gradient ? sum_activation_of(x) : nullptr;
  const ValueRef residual = addends.residual.defined() ? ValueRef(addends.residual) : ValueRef();
  context.tape->record(context, y,
                       [=, masks = sum != nullptr, mask = sum != nullptr ? sum->mask : Tensor(), x = SavedTensor(x),
                        bias = addends.bias](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                         store.add(ctx, residual, dy);
                         add_bias_gradient(ctx, bias, dy, store);
                         const bool reads_mask = masks && wants_gradient(x.ref());
                         if (wants_gradient(w) || (reads_mask && !mask.defined())) {
                           const Tensor input = x.unpack(ctx);  // gone before dx comes
                           if (wants_gradient(w)) conv2d_weight_gradient(ctx, shape, {input, dy}, w, store);
                           if (reads_mask && !mask.defined()) mask = mask_of(ctx, input);
                         }
                         if (!wants_gradient(x.ref())) return;
                         Tensor addend = reads_mask ? store.pop_rest(ctx, x.ref()) : Tensor();
                         Gradient dx = addend.defined()
                                           ? masked_input_gradient(ctx, shape, dy, w, mask, addend, store.observed())
                                           : Gradient(input_gradient(ctx, shape, dy, w));
                         addend = Tensor();
                         store.add(ctx, x.ref(), std::move(dx));
                       });
}

Tensor conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window, std::int64_t groups,
              const Tensor& bias, const Tensor& residual) {
  const Conv2dShape shape = conv2d_shape(x, w, window, groups);
  context.check_device("conv2d", {&x, &w});
  const bool adds = bias.defined() || residual.defined();
  if (adds && (!kernels::is_pointwise(shape) || deferred_norm_of(x) != nullptr)) {
    Tensor y = conv2d(context.inner(), x, w, window, groups);
    if (bias.defined()) y = bias_add(residual.defined() ? context.inner() : context, std::move(y), bias);
    return residual.defined() ? add(context, std::move(y), residual) : y;
  }
  if (deferred_norm_of(x) != nullptr) return pointwise_norm(context, x, w);
  const Conv2dAddends addends{bias, residual};
  Tensor y = adds ? forward_with_addends(context, shape, x, w, addends) : forward(context, shape, x, w);
  if (!records(context, {&x, &w, &bias, &residual})) return y;
  record_conv2d(context, y, shape, x, w, addends);
  return y;
}

}  // namespace bantam::ops
