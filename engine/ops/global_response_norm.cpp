// Global response normalisation. Backward keeps x (or its recipe) and the statistics; the output is rebuilt from them
// in one pass.
#include "bantam/kernels/norm/global_response_norm.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/program/node_plan.h"

namespace bantam::ops {
namespace {

/// One call: shape, parameters, and the statistics once they are known.
struct Call {
  kernels::GroupNormShape shape;
  Tensor scale, shift;
  float epsilon;
  Tensor norm, inverse;

  kernels::ResponseOperand operand(const Tensor& x) const {
    return {.x = x.data(),
            .scale = scale.as<float>(),
            .shift = shift.as<float>(),
            .norm = norm.as<float>(),
            .inverse = inverse.as<float>()};
  }
  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::global_response_workspace_bytes(shape, context.device.kind));
  }
};

void check(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift) {
  context.check_device("global_response_norm", {&x, &scale, &shift});
  if (x.shape().rank() < 3)
    throw ShapeError(
        fmt::format("global_response_norm: expected (batch, …, positions, channels), got {}", to_string(x.shape())));
  for (const Tensor* t : {&scale, &shift}) {
    if (t->shape() != Shape{x.shape()[-1]})
      throw ShapeError(fmt::format("global_response_norm: x {} needs vectors of {} channels, got {}",
                                   to_string(x.shape()), x.shape()[-1], to_string(t->shape())));
    if (t->dtype() != DType::float32) throw DTypeError("global_response_norm: scale and shift are float32");
  }
}

void apply(const Context& context, const Call& call, const Tensor& x, const Tensor& y) {
  BANTAM_KERNEL(context.exec, global_response_apply, call.shape, x.dtype(), call.operand(x), y.data());
}

/// Writes the statistics, and y unless it is undefined. The first pass of a checkpoint segment saves the statistics.
void forward(const Context& context, Call& call, const Tensor& x, const Tensor& y) {
  SavedStatistics* saved = context.step.saved;
  if (saved != nullptr && saved->replaying()) {
    call.norm = saved->next();
    call.inverse = saved->next();
    if (y.defined()) apply(context, call, x, y);
    return;
  }
  call.norm = context.allocate({call.shape.samples, call.shape.channels}, DType::float32);
  call.inverse = context.allocate({call.shape.samples}, DType::float32);
  if (saved != nullptr) {
    saved->save(call.norm);
    saved->save(call.inverse);
  }
  const Scratch scratch = call.scratch(context);
  const kernels::ResponseStatistics to{call.norm.as<float>(), call.inverse.as<float>(), call.epsilon};
  BANTAM_KERNEL(context.exec, global_response_forward, call.shape, x.dtype(), call.operand(x), to,
                y.defined() ? y.data() : nullptr, scratch.get());
}

void backward(const Context& context, const Call& call, SavedTensor& saved, const Tensor& dy, GradientStore& store) {
  NormTargets to(context, "global_response_norm", call.scale, call.shift, store);
  Tensor dx;
  if (wants_gradient(saved.ref())) dx = reuse_or_allocate(context, dy);
  {
    const Tensor x = saved.unpack(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, global_response_backward, call.shape, x.dtype(), call.operand(x), dy.data(),
                  to.with(dx), scratch.get());
  }
  to.add_to(context, store);
  if (dx.defined()) store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor global_response_norm(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift,
                            float epsilon) {
  check(context, x, scale, shift);
  const std::int64_t samples = x.shape()[0], channels = x.shape()[-1], vectors = samples * channels;
  Call call{.shape = {.samples = samples,
                      .positions = vectors == 0 ? 0 : x.elements() / vectors,
                      .channels = channels,
                      .groups = 1},
            .scale = scale,
            .shift = shift,
            .epsilon = epsilon,
            .norm = {},
            .inverse = {}};
  const bool written = !context.output_unused();
  Tensor y = written ? context.allocate(x.shape(), x.dtype()) : x.view(x.shape());
  forward(context, call, x, written ? y : Tensor());
  if (!records(context, {&x, &scale, &shift})) return y;
  const SavedTensor saved(x);
  context.tape->record(context, y, [=, x = saved](const Context& ctx, Tensor dy, GradientStore& store) mutable {
    backward(ctx, call, x, dy, store);
  });
  attach_recipe(context, y, {&saved}, [=](const Context& ctx) {
    const Tensor input = saved.get(ctx);
    Tensor rebuilt = ctx.allocate(input.shape(), input.dtype());
    apply(ctx, call, input, rebuilt);
    return rebuilt;
  });
  return y;
}

}  // namespace bantam::ops
