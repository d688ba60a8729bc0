// Batch norm: backward keeps x and the batch's mean and inverse deviation.
#include "bantam/engine/ops/batch_norm.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/ops/gradient_target.h"
#include "bantam/engine/tape.h"

namespace bantam::ops {
namespace {

const float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.as<float>() : nullptr; }

void check(const Tensor& x, const BatchNormTensors& tensors) {
  if (x.shape().rank() < 2)
    throw ShapeError(fmt::format("batch_norm: expected (batch, …, channels), got {}", to_string(x.shape())));
  const Shape channels{x.shape()[-1]};
  for (const Tensor* t : {&tensors.scale, &tensors.shift, &tensors.running_mean, &tensors.running_variance,
                          &tensors.pending_mean, &tensors.pending_variance}) {
    if (!t->defined()) continue;
    if (t->shape() != channels)
      throw ShapeError(fmt::format("batch_norm: x {} needs vectors of {} channels, got {}", to_string(x.shape()),
                                   channels[0], to_string(t->shape())));
    if (t->dtype() != DType::float32) throw DTypeError("batch_norm: scale, shift and statistics are float32");
  }
}

/// A destination for the gradient of scale or shift: the arena's, a new tensor, or none.
struct VectorGradient {
  Tensor fresh;
  float* data = nullptr;
  bool accumulate = false;
};

VectorGradient vector_gradient(const Context& context, const Tensor& vector, GradientStore& store) {
  if (!vector.defined() || !wants_gradient(vector)) return {};
  if (vector.parameter() == nullptr) {
    const Tensor fresh = context.allocate(vector.shape(), DType::float32);
    return {fresh, fresh.as<float>(), false};
  }
  const ParameterGradient target = store.parameter(*vector.parameter());
  return {{}, target.data, target.accumulate};
}

}  // namespace

Tensor batch_norm(const Context& context, const Tensor& x, const BatchNormTensors& tensors, float epsilon,
                  kernels::RunningUpdate running) {
  check(x, tensors);
  context.check_device("batch_norm",
                       {&x, &tensors.scale, &tensors.shift, &tensors.running_mean, &tensors.running_variance});
  const std::int64_t channels = x.shape()[-1];
  const kernels::BatchNormShape shape{.rows = channels == 0 ? 0 : x.elements() / channels, .channels = channels};
  const DType dtype = x.dtype();
  const bool recorded = records(context, {&x, &tensors.scale, &tensors.shift});
  Tensor y = context.allocate(x.shape(), dtype);
  if (context.pass == Pass::evaluate) {
    if (recorded) throw Error("batch_norm: no gradient in evaluation; train with Pass::train");
    BANTAM_KERNEL(context.exec, batch_norm_forward_inference, shape, dtype, x.data(), floats(tensors.scale),
                  floats(tensors.shift), epsilon, floats(tensors.running_mean), floats(tensors.running_variance),
                  y.data());
    return y;
  }
  const Tensor mean = context.allocate({channels}, DType::float32),
               inv_std = context.allocate({channels}, DType::float32);
  const bool moves = context.pass == Pass::train && tensors.pending_mean.defined();
  {
    const Scratch scratch = context.scratch(kernels::batch_norm_workspace_bytes(shape, dtype, context.device.kind));
    BANTAM_KERNEL(context.exec, batch_norm_forward_training, shape, dtype, x.data(), floats(tensors.scale),
                  floats(tensors.shift), epsilon, running, moves ? tensors.pending_mean.as<float>() : nullptr,
                  moves ? tensors.pending_variance.as<float>() : nullptr, y.data(), mean.as<float>(),
                  inv_std.as<float>(), scratch.get());
  }
  if (!recorded) return y;
  context.tape->record(
      context, y,
      [=, scale = tensors.scale, shift = tensors.shift](const Context& ctx, Tensor dy, GradientStore& store) {
        VectorGradient dscale = vector_gradient(ctx, scale, store), dshift = vector_gradient(ctx, shift, store);
        if (dscale.data != nullptr && dshift.data != nullptr && dscale.accumulate != dshift.accumulate)
          throw Error("batch_norm: scale and shift must be used together");
        const Tensor dx = wants_gradient(x) ? reuse_or_allocate(ctx, dy) : Tensor();
        const Scratch scratch = ctx.scratch(kernels::batch_norm_workspace_bytes(shape, dtype, ctx.device.kind));
        BANTAM_KERNEL(ctx.exec, batch_norm_backward_training, shape, dtype, x.data(), dy.data(), floats(scale),
                      mean.as<float>(), inv_std.as<float>(), dx.defined() ? dx.data() : nullptr, dscale.data,
                      dshift.data, dscale.accumulate || dshift.accumulate, scratch.get());
        if (dscale.fresh.defined()) store.add(ctx, scale, std::move(dscale.fresh));
        if (dshift.fresh.defined()) store.add(ctx, shift, std::move(dshift.fresh));
        if (dx.defined()) store.add(ctx, x, dx);
      });
  return y;
}

}  // namespace bantam::ops
