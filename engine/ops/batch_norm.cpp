// Batch norm: backward keeps x (or its recipe) and the batch's mean and inverse deviation; the output is made from
// them in one pass.
#include "bantam/engine/ops/batch_norm.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {
namespace {

void check(const Tensor& x, const Norm& norm) {
  if (x.shape().rank() < 2)
    throw ShapeError(fmt::format("batch_norm: expected (batch, …, channels), got {}", to_string(x.shape())));
  const Shape channels{x.shape()[-1]};
  for (const Tensor* t : {&norm.scale, &norm.shift, &norm.running_mean, &norm.running_variance, &norm.next_running_mean,
                          &norm.next_running_variance}) {
    if (!t->defined()) continue;
    if (t->shape() != channels)
      throw ShapeError(fmt::format("batch_norm: x {} needs vectors of {} channels, got {}", to_string(x.shape()),
                                   channels[0], to_string(t->shape())));
    if (t->dtype() != DType::float32) throw DTypeError("batch_norm: scale, shift and statistics are float32");
  }
}

/// One call's shapes and its norm; in training, with the batch's statistics once they are known.
struct Call {
  kernels::BatchNormShape shape;
  DType dtype;
  Norm norm;

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::batch_norm_workspace_bytes(shape, dtype, context.device.kind));
  }
};

void apply(const Context& context, const Call& call, const Tensor& x, const Tensor& y) {
  BANTAM_KERNEL(context.exec, batch_norm_apply, call.shape, call.dtype, x.data(), call.norm.affine(),
                call.norm.mean.as<float>(), call.norm.inv_std.as<float>(), y.data());
}

/// The call's norm gets the batch's statistics; y (unless it is undefined) the norm's output.
void forward_training(const Context& context, Call& call, const Tensor& x, const Tensor& y) {
  const Norm norm = call.norm;
  call.norm = norm_of_batch(context, norm, call.shape.channels, statistics_of(x));
  if (has_statistics(context, x)) {
    if (y.defined()) apply(context, call, x, y);
    return;
  }
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, batch_norm_forward_training, call.shape, call.dtype, x.data(), norm.affine(),
                y.defined() ? y.data() : nullptr, norm.statistics_output(context, call.norm.mean, call.norm.inv_std),
                scratch.get());
}

Tensor forward_inference(const Context& context, const Call& call, const Tensor& x) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(context.exec, batch_norm_forward_inference, call.shape, call.dtype, x.data(), call.norm.affine(),
                call.norm.running_statistics(), y.data());
  return y;
}

void add_to(const Context& context, const ValueRef& x, NormTargets& to, Tensor dx, GradientStore& store) {
  to.add_to(context, store);
  if (dx.defined()) store.add(context, x, std::move(dx));
}

void backward(const Context& context, const Call& call, SavedTensor& saved, const Tensor& dy, GradientStore& store) {
  NormTargets to(context, "batch_norm", call.norm, store);
  Tensor dx;
  if (wants_gradient(saved.ref())) dx = reuse_or_allocate(context, dy);
  {
    const Tensor x = saved.unpack(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, batch_norm_backward_training, call.shape, call.dtype, call.norm.operand(x), dy.data(),
                  to.with(dx), scratch.get());
  }
  add_to(context, saved.ref(), to, std::move(dx), store);
}

/// The same from a deferred gradient: the pass that sums over dy also computes it, for its other owners too. It is
/// written to the memory of an operand that nobody else owns, and dx to the other's.
void backward_deferred(const Context& context, const Call& call, SavedTensor& saved, Gradient gradient,
                       GradientStore& store) {
  Gradient::Operands& operands = gradient.operands();
  Tensor value = std::move(operands.value), other = std::move(operands.other), mask = std::move(operands.mask);
  const kernels::SumGradient in{value.data(), other.defined() ? other.data() : nullptr,
                                mask.defined() ? mask.as<std::uint8_t>() : nullptr, operands.f};
  const bool swap = !value.sole_owner() && other.defined() && other.sole_owner();
  NormTargets to(context, "batch_norm", call.norm, store);
  Tensor dz = reuse_or_allocate(context, swap ? other : value), dx;
  if (wants_gradient(saved.ref())) {
    const Tensor& rest = swap ? value : other;
    dx = rest.defined() ? reuse_or_allocate(context, rest)
                        : (gradient.shared() ? context.allocate(dz.shape(), dz.dtype()) : dz.view(dz.shape()));
  }
  {
    const Tensor x = saved.unpack(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, batch_norm_add_grad, call.shape, call.dtype, in, call.norm.operand(x), dz.data(),
                  to.with(dx), scratch.get());
  }
  operands.value = std::move(dz);
  value = other = mask = Tensor();
  add_to(context, saved.ref(), to, std::move(dx), store);
}

/// Computes the gradients of a batch norm by running statistics, which are constants. x was kept only if one reads it.
void backward_inference(const Context& context, const Call& call, SavedTensor& saved, const ValueRef& input,
                        const Tensor& dy, GradientStore& store) {
  NormTargets to(context, "batch_norm", call.norm, store);
  Tensor dx;
  if (wants_gradient(input)) dx = reuse_or_allocate(context, dy);
  {
    const Tensor x = saved.defined() ? saved.unpack(context) : Tensor();
    const Scratch scratch =
        context.scratch(kernels::batch_norm_inference_workspace_bytes(call.shape, to.with(dx), context.device.kind));
    BANTAM_KERNEL(context.exec, batch_norm_backward_inference, call.shape, call.dtype, x.defined() ? x.data() : nullptr,
                  call.norm.affine(), call.norm.running_statistics(), dy.data(), to.with(dx), scratch.get());
  }
  add_to(context, input, to, std::move(dx), store);
}

Tensor batch_norm_inference(const Context& context, const Call& call, const Tensor& x) {
  Tensor y = forward_inference(context, call, x);
  const Norm& norm = call.norm;
  if (!records(context, {&x, &norm.scale, &norm.shift})) return y;
  const auto trains = [](const Tensor& t) { return t.defined() && wants_gradient(t); };
  const bool reads_x = norm.activation.kind != Activation::none || trains(norm.scale) || trains(norm.shift);
  const SavedTensor saved = reads_x ? SavedTensor(x) : SavedTensor();
  context.tape->record(
      context, y, [=, kept = saved, input = ValueRef(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        backward_inference(ctx, call, kept, input, dy, store);
      });
  if (reads_x)
    attach_recipe(context, y, {&saved},
                  [=](const Context& ctx) { return forward_inference(ctx, call, saved.get(ctx)); });
  return y;
}

}  // namespace

void check_batch_norm(const Context& context, const Tensor& x, const Norm& norm) {
  check(x, norm);
  context.check_device("batch_norm", {&x, &norm.scale, &norm.shift, &norm.running_mean, &norm.running_variance});
}

bool has_statistics(const Context& context, const Tensor& x) {
  return context.replays() || statistics_of(x) != nullptr;
}

Norm norm_of_batch(const Context& context, const Norm& norm, std::int64_t channels, const BatchStatistics* known) {
  SavedStatistics* saved = context.step.saved;
  Norm result = norm.of_batch({}, {});
  for (Tensor* vector : {&result.mean, &result.inv_std}) {
    if (context.replays()) {
      *vector = saved->next();
      continue;
    }
    *vector = known == nullptr         ? context.allocate({channels}, DType::float32)
              : vector == &result.mean ? known->mean
                                       : known->inv_std;
    if (saved != nullptr) saved->save(*vector);
  }
  return result;
}

void measure_norm(const Context& context, const Tensor& x, const Norm& norm, const Norm& batch) {
  if (has_statistics(context, x)) return;
  const std::int64_t channels = x.shape()[-1];
  const Call call{{.rows = channels == 0 ? 0 : x.elements() / channels, .channels = channels}, x.dtype(), norm};
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, batch_norm_forward_training, call.shape, call.dtype, x.data(), {}, nullptr,
                norm.statistics_output(context, batch.mean, batch.inv_std), scratch.get());
}

Tensor batch_norm(const Context& context, const Tensor& x, const Norm& norm) {
  check_batch_norm(context, x, norm);
  const std::int64_t channels = x.shape()[-1];
  Call call{{.rows = channels == 0 ? 0 : x.elements() / channels, .channels = channels}, x.dtype(), norm};
  if (context.pass == Pass::evaluate || norm.frozen) return batch_norm_inference(context, call, x);
  const bool recorded = records(context, {&x, &norm.scale, &norm.shift});
  const bool deferred = context.plan().defers_norm && norm.activation.kind == Activation::none;
  const bool written = !deferred && !context.output_unused();
  Tensor y = written ? context.allocate(x.shape(), x.dtype()) : x.view(x.shape());
  forward_training(context, call, x, written ? y : Tensor());
  const SavedTensor saved = recorded ? SavedTensor(x) : SavedTensor();
  if (recorded)
    context.tape->record_deferred(context, y,
                                  [=, x = saved](const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                    if (dy.is_deferred() && call.norm.activation.kind == Activation::none)
                                      return backward_deferred(ctx, call, x, std::move(dy), store);
                                    backward(ctx, call, x, std::move(dy).tensor(ctx), store);
                                  });
  if (deferred)
    set_deferred_norm(y, {saved, call.norm});
  else if (recorded)
    attach_recipe(context, y, {&saved}, [=](const Context& ctx) {
      const Tensor input = saved.get(ctx), rebuilt = ctx.allocate(input.shape(), input.dtype());
      apply(ctx, call, input, rebuilt);
      return rebuilt;
    });
  return y;
}

Tensor batch_norm(const Context& context, const Tensor& x, const BatchNormTensors& tensors,
                  const BatchNormSettings& settings) {
  return batch_norm(context, x,
                    Norm{.scale = tensors.scale,
                         .shift = tensors.shift,
                         .running_mean = tensors.running_mean,
                         .running_variance = tensors.running_variance,
                         .next_running_mean = tensors.next_running_mean,
                         .next_running_variance = tensors.next_running_variance,
                         .epsilon = settings.epsilon,
                         .running = {settings.rate, settings.unbiased},
                         .activation = settings.activation});
}

}  // namespace bantam::ops
