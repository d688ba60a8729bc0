// Bias, alone and with an activation after it: db is a sum over rows of what dx is.
#include "bantam/engine/ops/bias.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"

namespace bantam::ops {
namespace {

/// Both gradients, dx over dy where nobody else holds that. `saved` is read and released.
Tensor gradients(const Context& context, ActivationFunction f, const kernels::BiasShape& shape, const Tensor& b,
                 SavedActivation& saved, Tensor dy, GradientStore& store) {
  if (!saved.mask.defined() && !saved.input.defined() && !saved.output.defined())
    throw Error("bias_activation: the only reader of its output was to multiply the gradient by relu'");
  FloatGradient db(context, b, store, FloatGradient::Unwanted::written);
  Tensor dx = reuse_or_allocate(context, dy);
  const Tensor x = saved.input.defined() ? saved.input.unpack(context) : Tensor();
  const Tensor y = saved.output.defined() ? saved.output.unpack(context) : Tensor();
  const kernels::BiasActivationGradInputs in{
      .dy = dy.data(),
      .mask = saved.mask.defined() ? saved.mask.as<const std::uint8_t>() : nullptr,
      .x = x.defined() ? x.data() : nullptr,
      .b = b.data(),
      .y = y.defined() ? y.data() : nullptr};
  const Scratch scratch = context.scratch(kernels::bias_activation_grad_workspace_bytes(shape, context.device.kind));
  BANTAM_KERNEL(context.exec, bias_activation_grad, f, shape, dy.dtype(), in,
                {.dx = dx.data(), .db = db.data, .accumulate = db.accumulate}, scratch.get());
  db.add_to(context, b, store);
  return dx;
}

/// db of a gradient that relu' was multiplied with already: the sums that came with it.
void add_sums(const Context& context, const Tensor& b, const Tensor& sums, GradientStore& store) {
  FloatGradient db(context, b, store);
  if (db.data == nullptr) return;
  const std::int64_t channels = sums.elements();
  if (db.accumulate)
    BANTAM_KERNEL(context.exec, add, channels, DType::float32, db.data, sums.data(), db.data);
  else
    BANTAM_KERNEL(context.exec, cast, channels, DType::float32, sums.data(), DType::float32, db.data);
  db.add_to(context, b, store);
}

}  // namespace

kernels::BiasShape bias_shape(const Context& context, const char* op, const Tensor& x, const Tensor& b) {
  context.check_device(op, {&x, &b});
  const int axes = b.shape().rank();
  if (axes < 1 || axes > x.shape().rank() ||
      !std::ranges::equal(x.shape().extents().last(static_cast<std::size_t>(axes)), b.shape().extents()))
    throw ShapeError(fmt::format("{}: x {} and bias {} do not fit; expected as many values as the last axis has", op,
                                 to_string(x.shape()), to_string(b.shape())));
  if (x.dtype() != b.dtype())
    throw DTypeError(fmt::format("{}: x is {} and the bias {}", op, to_string(x.dtype()), to_string(b.dtype())));
  const std::int64_t channels = b.elements();
  return {.rows = channels == 0 ? 0 : x.elements() / channels, .channels = channels};
}

Tensor bias_add(const Context& context, Tensor x, const Tensor& b) {
  const kernels::BiasShape shape = bias_shape(context, "bias_add", x, b);
  const std::int64_t rows = shape.rows, channels = shape.channels;
  Tensor y = reuse_or_allocate(context, x);
  BANTAM_KERNEL(context.exec, bias_forward, rows, channels, x.dtype(), x.data(), b.data(), y.data());
  if (!records(context, {&x, &b})) return y;
  context.tape->record(context, y, [=, x_ref = ValueRef(x)](const Context& ctx, Tensor dy, GradientStore& store) {
    if (FloatGradient db(ctx, b, store); db.data != nullptr) {
      const Scratch scratch = ctx.scratch(kernels::bias_grad_workspace_bytes(rows, channels, ctx.device.kind));
      BANTAM_KERNEL(ctx.exec, bias_grad, rows, channels, dy.dtype(), dy.data(), db.data, db.accumulate, scratch.get());
      db.add_to(ctx, b, store);
    }
    store.add(ctx, x_ref, std::move(dy));
  });
  return y;
}

bool masks_bias_gradient(const Context& context, ActivationFunction f) {
  return context.plan().gradient_is_masked && f.kind == Activation::relu;
}

void record_bias_activation(const Context& context, Tensor& y, const ValueRef& x, const Tensor& b, ActivationFunction f,
                            const SavedActivation& saved) {
  const kernels::BiasShape shape = bias_shape(context, "bias_activation", y, b);
  context.tape->record_deferred(context, y,
                                [=, saved = saved](const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                  const Tensor sums = dy.operands().sums;
                                  Tensor dx = std::move(dy).tensor(ctx);
                                  if (sums.defined())
                                    add_sums(ctx, b, sums, store);
                                  else
                                    dx = gradients(ctx, f, shape, b, saved, std::move(dx), store);
                                  store.add(ctx, x, std::move(dx));
                                });
}

Tensor bias_activation(const Context& context, Tensor x, const Tensor& b, ActivationFunction f) {
  if (f.kind == Activation::none) return bias_add(context, std::move(x), b);
  const kernels::BiasShape shape = bias_shape(context, "bias_activation", x, b);
  const bool recorded = records(context, {&x, &b});
  const bool piecewise = kernels::is_piecewise(f.kind), keeps_input = kernels::activation_grad_reads_input(f.kind);
  const bool masked = masks_bias_gradient(context, f);
  const ValueRef x_ref = x;
  SavedActivation saved;
  if (recorded && keeps_input) saved.input = SavedTensor(x);
  if (recorded && piecewise && !masked)
    saved.mask =
        context.allocate({static_cast<std::int64_t>(kernels::activation_mask_bytes(x.elements()))}, DType::uint8);
  Tensor y = reuse_or_allocate(context, x);  // not x where it is saved
  const auto forward = [f, shape, b](const Context& ctx, const Tensor& from, const Tensor& to, std::uint8_t* mask) {
    BANTAM_KERNEL(ctx.exec, bias_activation_forward, f, shape, from.dtype(), from.data(), b.data(), to.data(), mask);
  };
  forward(context, x, y, saved.mask.defined() ? saved.mask.as<std::uint8_t>() : nullptr);
  if (masked) set_sum_activation(y, {});
  if (!recorded) return y;
  if (!piecewise && !keeps_input) saved.output = SavedTensor(y);
  record_bias_activation(context, y, x_ref, b, f, saved);
  if (keeps_input)
    attach_recipe(context, y, {&saved.input}, [=, input = saved.input](const Context& ctx) {
      const Tensor from = input.get(ctx);
      Tensor to = ctx.allocate(from.shape(), from.dtype());
      forward(ctx, from, to, nullptr);
      return to;
    });
  if (keeps_input && !wants_gradient(x_ref)) set_biased_activation(y, {saved.input, b, f});
  return y;
}

}  // namespace bantam::ops
