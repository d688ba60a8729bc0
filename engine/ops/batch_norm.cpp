// Batch norm: backward keeps x (or how to make it) and the batch's mean and inverse deviation; the output is made from
// them in one pass.
#include "bantam/engine/ops/batch_norm.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/batch_statistics.h"
#include "bantam/engine/autograd/pending_norm.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/gradient_target.h"

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

/// What forward leaves for backward, and for running again.
struct Statistics {
  Tensor mean, inv_std;
};

/// One call's shapes and constants.
struct Call {
  kernels::BatchNormShape shape;
  DType dtype;
  Tensor scale, shift;
  kernels::ActivationFunction activation;

  kernels::BatchNormAffine affine() const { return {floats(scale), floats(shift), activation}; }
  kernels::NormOperand operand(const Tensor& x, const Statistics& statistics) const {
    return {.x = x.data(),
            .affine = affine(),
            .mean = statistics.mean.as<float>(),
            .inv_std = statistics.inv_std.as<float>()};
  }
  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::batch_norm_workspace_bytes(shape, dtype, context.device.kind));
  }
};

void apply(const Context& context, const Call& call, const Tensor& x, const Statistics& statistics, const Tensor& y) {
  BANTAM_KERNEL(context.exec, batch_norm_apply, call.shape, call.dtype, x.data(), call.affine(),
                statistics.mean.as<float>(), statistics.inv_std.as<float>(), y.data());
}

void leave(Keepsakes* keepsakes, const Statistics& statistics) {
  if (keepsakes == nullptr) return;
  keepsakes->leave(statistics.mean);
  keepsakes->leave(statistics.inv_std);
}

/// y (unless it is undefined) with the batch's statistics: those of the first pass where a stretch runs again, those
/// that x has, or of a pass over x.
Statistics forward_training(const Context& context, const Call& call, const Tensor& x, const BatchNormTensors& tensors,
                            const BatchNormSettings& settings, const Tensor& y) {
  Keepsakes* keepsakes = context.keepsakes;
  if (keepsakes != nullptr && keepsakes->replaying()) {
    const Tensor mean = keepsakes->take(), inv_std = keepsakes->take();
    if (y.defined()) apply(context, call, x, {mean, inv_std}, y);
    return {mean, inv_std};
  }
  if (const auto& known = x.statistics(); known != nullptr) {
    if (y.defined()) apply(context, call, x, {known->mean, known->inv_std}, y);
    leave(keepsakes, {known->mean, known->inv_std});
    return {known->mean, known->inv_std};
  }
  const Shape channels{call.shape.channels};
  const Tensor mean = context.allocate(channels, DType::float32), inv_std = context.allocate(channels, DType::float32);
  const bool moves = context.pass == Pass::train && tensors.pending_mean.defined();
  const Scratch scratch = call.scratch(context);
  const kernels::StatisticsOutput output{.epsilon = settings.epsilon,
                                         .update = settings.running,
                                         .running_mean = moves ? tensors.pending_mean.as<float>() : nullptr,
                                         .running_variance = moves ? tensors.pending_variance.as<float>() : nullptr,
                                         .mean = mean.as<float>(),
                                         .inv_std = inv_std.as<float>()};
  BANTAM_KERNEL(context.exec, batch_norm_forward_training, call.shape, call.dtype, x.data(), call.affine(),
                y.defined() ? y.data() : nullptr, output, scratch.get());
  leave(keepsakes, {mean, inv_std});
  return {mean, inv_std};
}

Tensor forward_inference(const Context& context, const Call& call, const Tensor& x, const BatchNormTensors& tensors,
                         const BatchNormSettings& settings) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(
      context.exec, batch_norm_forward_inference, call.shape, call.dtype, x.data(), call.affine(),
      {.mean = floats(tensors.running_mean), .variance = floats(tensors.running_variance), .epsilon = settings.epsilon},
      y.data());
  return y;
}

/// Where the gradients of scale, shift and x go.
struct Targets {
  FloatGradient scale, shift;
  Tensor dx;

  kernels::NormGradients get() const {
    return {dx.defined() ? dx.data() : nullptr, scale.data, shift.data, scale.accumulate || shift.accumulate};
  }
};

Targets targets(const Context& context, const Call& call, GradientStore& store) {
  Targets to{{context, call.scale, store}, {context, call.shift, store}, {}};
  if (to.scale.data != nullptr && to.shift.data != nullptr && to.scale.accumulate != to.shift.accumulate)
    throw Error("batch_norm: scale and shift must be used together");
  return to;
}

void hand_on(const Context& context, const Call& call, const ValueRef& x, Targets to, GradientStore& store) {
  to.scale.hand_on(context, call.scale, store);
  to.shift.hand_on(context, call.shift, store);
  if (to.dx.defined()) store.add(context, x, std::move(to.dx));
}

void backward(const Context& context, const Call& call, SavedTensor& saved, const Statistics& statistics,
              const Tensor& dy, GradientStore& store) {
  Targets to = targets(context, call, store);
  if (wants_gradient(saved.ref())) to.dx = reuse_or_allocate(context, dy);
  {
    const Tensor x = saved.take(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, batch_norm_backward_training, call.shape, call.dtype, call.operand(x, statistics),
                  dy.data(), to.get(), scratch.get());
  }
  hand_on(context, call, saved.ref(), std::move(to), store);
}

/// The same from a gradient in pieces: the pass that sums over dy makes it, for whoever else waits for it too. It goes
/// into the memory of a piece that nobody else holds, and dx into the other's.
void backward_in_pieces(const Context& context, const Call& call, SavedTensor& saved, const Statistics& statistics,
                        Gradient gradient, GradientStore& store) {
  Gradient::Pieces& pieces = gradient.pieces();
  Tensor value = std::move(pieces.value), other = std::move(pieces.other), mask = std::move(pieces.mask);
  const kernels::SumGradient in{value.data(), other.defined() ? other.data() : nullptr,
                                mask.defined() ? mask.as<std::uint8_t>() : nullptr, pieces.f};
  const bool swap = !value.sole_owner() && other.defined() && other.sole_owner();
  Targets to = targets(context, call, store);
  Tensor dz = reuse_or_allocate(context, swap ? other : value);
  if (wants_gradient(saved.ref())) {
    const Tensor& rest = swap ? value : other;
    to.dx = rest.defined() ? reuse_or_allocate(context, rest)
                           : (gradient.shared() ? context.allocate(dz.shape(), dz.dtype()) : dz.view(dz.shape()));
  }
  {
    const Tensor x = saved.take(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, batch_norm_add_grad, call.shape, call.dtype, in, call.operand(x, statistics), dz.data(),
                  to.get(), scratch.get());
  }
  pieces.value = std::move(dz);
  value = other = mask = Tensor();
  hand_on(context, call, saved.ref(), std::move(to), store);
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
  const bool written = !deferred && !context.unread();
  Tensor y = written ? context.allocate(x.shape(), x.dtype()) : x.view(x.shape());
  const Statistics statistics = forward_training(context, call, x, tensors, settings, written ? y : Tensor());
  const SavedTensor saved = recorded ? SavedTensor(x) : SavedTensor();
  if (recorded)
    context.tape->record_pieces(context, y,
                                [=, x = saved](const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                  if (dy.in_pieces() && call.activation.kind == kernels::Activation::none)
                                    return backward_in_pieces(ctx, call, x, statistics, std::move(dy), store);
                                  backward(ctx, call, x, statistics, std::move(dy).tensor(ctx), store);
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
