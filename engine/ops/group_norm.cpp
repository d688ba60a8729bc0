// Norms of each sample by itself: group norm over images and the like, layer norm over the last axis. Backward keeps x
// (or its recipe) and the statistics; the output is rebuilt from them in one pass. The gradient that x has from others,
// a residual's say, is added as dx is written.
#include "bantam/kernels/norm/group_norm.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/program/node_plan.h"

namespace bantam::ops {
namespace {

/// One call: shapes, parameters, and the statistics once they are known.
struct Call {
  const char* op;
  kernels::GroupNormShape shape;
  Tensor scale, shift;
  ActivationFunction activation;
  float epsilon;
  Tensor mean, inv_std;

  kernels::BatchNormAffine affine() const {
    return {scale.defined() ? scale.as<float>() : nullptr, shift.defined() ? shift.as<float>() : nullptr, activation};
  }
  kernels::NormOperand operand(const Tensor& x) const {
    return {x.data(), affine(), mean.as<float>(), inv_std.as<float>()};
  }
  Scratch scratch(const Context& context, DType dtype) const {
    return context.scratch(kernels::group_norm_workspace_bytes(shape, dtype, context.device.kind));
  }
};

void check(const Context& context, const Call& call, const Tensor& x) {
  context.check_device(call.op, {&x, &call.scale, &call.shift});
  for (const Tensor* t : {&call.scale, &call.shift}) {
    if (!t->defined()) continue;
    if (t->shape() != Shape{call.shape.channels})
      throw ShapeError(fmt::format("{}: x {} needs vectors of {} channels, got {}", call.op, to_string(x.shape()),
                                   call.shape.channels, to_string(t->shape())));
    if (t->dtype() != DType::float32) throw DTypeError(fmt::format("{}: scale and shift are float32", call.op));
  }
}

void apply(const Context& context, const Call& call, const Tensor& x, const Tensor& y) {
  BANTAM_KERNEL(context.exec, group_norm_apply, call.shape, x.dtype(), call.operand(x), y.data());
}

/// Writes the statistics, and y unless it is undefined. Statistics that take a pass of their own are saved by the first
/// pass of a checkpoint segment; those of a row of memory come with y.
void forward(const Context& context, Call& call, const Tensor& x, const Tensor& y) {
  SavedStatistics* saved = call.shape.positions > 1 ? context.step.saved : nullptr;
  if (saved != nullptr && saved->replaying()) {
    call.mean = saved->next();
    call.inv_std = saved->next();
    if (y.defined()) apply(context, call, x, y);
    return;
  }
  call.mean = context.allocate({call.shape.samples, call.shape.groups}, DType::float32);
  call.inv_std = context.allocate({call.shape.samples, call.shape.groups}, DType::float32);
  if (saved != nullptr) {
    saved->save(call.mean);
    saved->save(call.inv_std);
  }
  const Scratch scratch = call.scratch(context, x.dtype());
  BANTAM_KERNEL(context.exec, group_norm_forward, call.shape, x.dtype(), x.data(), call.affine(), call.epsilon,
                y.defined() ? y.data() : nullptr, call.mean.as<float>(), call.inv_std.as<float>(), scratch.get());
}

void backward(const Context& context, const Call& call, SavedTensor& saved, const Tensor& dy, GradientStore& store) {
  NormTargets to(context, call.op, call.scale, call.shift, store);
  Tensor dx, addend;
  if (wants_gradient(saved.ref())) {
    addend = store.pop_rest(context, saved.ref());
    dx = reuse_or_allocate(context, addend.defined() && !dy.sole_owner() ? addend : dy);
  }
  {
    const Tensor x = saved.unpack(context);
    const Scratch scratch = call.scratch(context, x.dtype());
    BANTAM_KERNEL(context.exec, group_norm_backward, call.shape, x.dtype(), call.operand(x), dy.data(),
                  addend.defined() ? addend.data() : nullptr, to.with(dx), scratch.get());
  }
  to.add_to(context, store);
  if (dx.defined()) store.add(context, saved.ref(), std::move(dx));
}

Tensor normalised(const Context& context, const Tensor& x, Call call) {
  check(context, call, x);
  const bool recorded = records(context, {&x, &call.scale, &call.shift}), written = !context.output_unused();
  Tensor y = written ? context.allocate(x.shape(), x.dtype()) : x.view(x.shape());
  forward(context, call, x, written ? y : Tensor());
  if (!recorded) return y;
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

}  // namespace

Tensor group_norm(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift,
                  const GroupNormSettings& settings) {
  if (x.shape().rank() < 2)
    throw ShapeError(fmt::format("group_norm: expected (batch, …, channels), got {}", to_string(x.shape())));
  const std::int64_t samples = x.shape()[0], channels = x.shape()[-1], vectors = samples * channels;
  if (settings.groups < 1 || channels % settings.groups != 0)
    throw ShapeError(fmt::format("group_norm: {} groups do not divide the {} channels of {}", settings.groups, channels,
                                 to_string(x.shape())));
  return normalised(context, x,
                    {.op = "group_norm",
                     .shape = {.samples = samples,
                               .positions = vectors == 0 ? 0 : x.elements() / vectors,
                               .channels = channels,
                               .groups = settings.groups},
                     .scale = scale,
                     .shift = shift,
                     .activation = settings.activation,
                     .epsilon = settings.epsilon});
}

Tensor layer_norm(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift, float epsilon) {
  if (x.shape().rank() < 1) throw ShapeError("layer_norm: expected (…, channels), got a scalar");
  const std::int64_t channels = x.shape()[-1];
  return normalised(context, x,
                    {.op = "layer_norm",
                     .shape = {.samples = channels == 0 ? 0 : x.elements() / channels, .channels = channels},
                     .scale = scale,
                     .shift = shift,
                     .activation = {},
                     .epsilon = epsilon});
}

}  // namespace bantam::ops
