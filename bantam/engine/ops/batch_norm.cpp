// Batch norm: backward keeps x (or how to make it) and the batch's mean and inverse deviation; the output is made from
// them in one pass.
#include "bantam/engine/ops/batch_norm.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/ops/gradient_target.h"
#include "bantam/engine/pending_norm.h"
#include "bantam/engine/saved_tensor.h"
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

/// One call's shapes and constants.
struct Call {
  kernels::BatchNormShape shape;
  DType dtype;
  Tensor scale, shift;
  kernels::ActivationFunction activation;

  kernels::BatchNormAffine affine() const { return {floats(scale), floats(shift), activation}; }
  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::batch_norm_workspace_bytes(shape, dtype, context.device.kind));
  }
};

/// What forward leaves for backward, and for running again.
struct Statistics {
  Tensor mean, inv_std;
};

void apply(const Context& context, const Call& call, const Tensor& x, const Statistics& statistics, const Tensor& y) {
  BANTAM_KERNEL(context.exec, batch_norm_apply, call.shape, call.dtype, x.data(), call.affine(),
                statistics.mean.as<float>(), statistics.inv_std.as<float>(), y.data());
}

/// y (unless it is undefined) with the batch's statistics; those of the first pass where a stretch runs again.
Statistics forward_training(const Context& context, const Call& call, const Tensor& x, const BatchNormTensors& tensors,
                            const BatchNormSettings& settings, const Tensor& y) {
  Keepsakes* keepsakes = context.keepsakes;
  if (keepsakes != nullptr && keepsakes->replaying()) {
    const Tensor mean = keepsakes->take(), inv_std = keepsakes->take();
    if (y.defined()) apply(context, call, x, {mean, inv_std}, y);
    return {mean, inv_std};
  }
  const Shape channels{call.shape.channels};
  const Tensor mean = context.allocate(channels, DType::float32), inv_std = context.allocate(channels, DType::float32);
  const bool moves = context.pass == Pass::train && tensors.pending_mean.defined();
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, batch_norm_forward_training, call.shape, call.dtype, x.data(), call.affine(),
                settings.epsilon, settings.running, moves ? tensors.pending_mean.as<float>() : nullptr,
                moves ? tensors.pending_variance.as<float>() : nullptr, y.defined() ? y.data() : nullptr,
                mean.as<float>(), inv_std.as<float>(), scratch.get());
  if (keepsakes != nullptr) {
    keepsakes->leave(mean);
    keepsakes->leave(inv_std);
  }
  return {mean, inv_std};
}

Tensor forward_inference(const Context& context, const Call& call, const Tensor& x, const BatchNormTensors& tensors,
                         const BatchNormSettings& settings) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(context.exec, batch_norm_forward_inference, call.shape, call.dtype, x.data(), call.affine(),
                settings.epsilon, floats(tensors.running_mean), floats(tensors.running_variance), y.data());
  return y;
}

void backward(const Context& context, const Call& call, SavedTensor& saved, const Statistics& statistics,
              const Tensor& dy, GradientStore& store) {
  VectorGradient dscale = vector_gradient(context, call.scale, store),
                 dshift = vector_gradient(context, call.shift, store);
  if (dscale.data != nullptr && dshift.data != nullptr && dscale.accumulate != dshift.accumulate)
    throw Error("batch_norm: scale and shift must be used together");
  const Tensor dx = wants_gradient(saved.ref()) ? reuse_or_allocate(context, dy) : Tensor();
  {
    const Tensor x = saved.take(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, batch_norm_backward_training, call.shape, call.dtype, x.data(), dy.data(),
                  call.affine(), statistics.mean.as<float>(), statistics.inv_std.as<float>(),
                  dx.defined() ? dx.data() : nullptr, dscale.data, dshift.data, dscale.accumulate || dshift.accumulate,
                  scratch.get());
  }
  if (dscale.fresh.defined()) store.add(context, call.scale, std::move(dscale.fresh));
  if (dshift.fresh.defined()) store.add(context, call.shift, std::move(dshift.fresh));
  if (dx.defined()) store.add(context, saved.ref(), dx);
}

}  // namespace

Tensor batch_norm(const Context& context, const Tensor& x, const BatchNormTensors& tensors,
                  const BatchNormSettings& settings) {
  check(x, tensors);
  context.check_device("batch_norm",
                       {&x, &tensors.scale, &tensors.shift, &tensors.running_mean, &tensors.running_variance});
  const std::int64_t channels = x.shape()[-1];
  const Call call{{.rows = channels == 0 ? 0 : x.elements() / channels, .channels = channels},
                  x.dtype(),
                  tensors.scale,
                  tensors.shift,
                  settings.activation};
  const bool recorded = records(context, {&x, &tensors.scale, &tensors.shift});
  if (context.pass == Pass::evaluate) {
    if (recorded) throw Error("batch_norm: no gradient in evaluation; train with Pass::train");
    return forward_inference(context, call, x, tensors, settings);
  }
  const bool deferred = context.defer && settings.activation.kind == kernels::Activation::none;
  Tensor y = deferred ? x.view(x.shape()) : context.allocate(x.shape(), x.dtype());
  const Statistics statistics = forward_training(context, call, x, tensors, settings, deferred ? Tensor() : y);
  const SavedTensor saved = recorded ? SavedTensor(x) : SavedTensor();
  if (recorded)
    context.tape->record(context, y, [=, x = saved](const Context& ctx, Tensor dy, GradientStore& store) mutable {
      backward(ctx, call, x, statistics, dy, store);
    });
  if (deferred)
    y.set_pending(
        std::make_shared<PendingNorm>(PendingNorm{saved, call.scale, call.shift, statistics.mean, statistics.inv_std}));
  else if (recorded)
    attach_recipe(context, y, {&saved}, [=](const Context& ctx) {
      const Tensor input = saved.get(ctx), again = ctx.allocate(input.shape(), input.dtype());
      apply(ctx, call, input, statistics, again);
      return again;
    });
  return y;
}

}  // namespace bantam::ops
