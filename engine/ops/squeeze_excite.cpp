// Squeeze-and-excitation: backward sums over dy and x for the factors' gradient, and writes dx = dy·factor +
// dmean/(H·W) in a second pass.
#include "bantam/kernels/join/squeeze_excite.h"

#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {
namespace {

using kernels::ParameterTarget;

void check(const Context& context, const Tensor& x, const SqueezeExciteTensors& w) {
  context.check_device("squeeze_excite", {&x, &w.reduce, &w.reduce_bias, &w.expand, &w.expand_bias});
  check_image("squeeze_excite", x.shape());
  const std::int64_t channels = x.shape()[3], units = w.reduce.shape().rank() == 2 ? w.reduce.shape()[0] : 0;
  if (units < 1 || w.reduce.shape() != Shape{units, channels} || w.reduce_bias.shape() != Shape{units} ||
      w.expand.shape() != Shape{channels, units} || w.expand_bias.shape() != Shape{channels})
    throw ShapeError(fmt::format(
        "squeeze_excite: x {} needs reduce (units, {}) and (units), expand ({}, units) and ({}), got {}, {}, {} and {}",
        to_string(x.shape()), channels, channels, channels, to_string(w.reduce.shape()),
        to_string(w.reduce_bias.shape()), to_string(w.expand.shape()), to_string(w.expand_bias.shape())));
  for (const Tensor* weight : {&w.reduce, &w.reduce_bias, &w.expand, &w.expand_bias})
    if (weight->dtype() != x.dtype())
      throw DTypeError(
          fmt::format("squeeze_excite: x is {} and a weight {}", to_string(x.dtype()), to_string(weight->dtype())));
}

/// One call: its shapes, weights and what its kernels compute between the passes over x.
struct Call {
  kernels::ChannelScaleShape image;
  kernels::SqueezeExciteShape gate;
  SqueezeExciteTensors weights;
  Tensor mean, reduced, hidden, expanded, factor;

  Call(const Context& context, const Tensor& x, const SqueezeExciteTensors& w)
      : image{.samples = x.shape()[0],
              .positions = x.shape()[1] * x.shape()[2],
              .channels = x.shape()[3],
              .dtype = x.dtype()},
        weights(w) {
    gate = {.samples = image.samples,
            .channels = image.channels,
            .units = w.reduce.shape()[0],
            .positions = image.positions,
            .dtype = x.dtype()};
    const Shape channels{gate.samples, gate.channels}, units{gate.samples, gate.units};
    for (Tensor* tensor : {&mean, &expanded, &factor}) *tensor = context.allocate(channels, DType::float32);
    for (Tensor* tensor : {&reduced, &hidden}) *tensor = context.allocate(units, DType::float32);
  }
  kernels::SqueezeExciteWeights data() const {
    return {weights.reduce.data(), weights.reduce_bias.data(), weights.expand.data(), weights.expand_bias.data()};
  }
  Scratch image_scratch(const Context& context) const {
    return context.scratch(kernels::channel_scale_workspace_bytes(image, context.device.kind));
  }
};

void forward_gate(const Context& context, const Call& call, const Tensor& x) {
  {
    const Scratch scratch = call.image_scratch(context);
    BANTAM_KERNEL(context.exec, position_mean, call.image, x.data(), call.mean.as<float>(), scratch.get());
  }
  BANTAM_KERNEL(context.exec, squeeze_excite_forward, call.gate, call.mean.as<float>(), call.data(),
                {.reduced = call.reduced.as<float>(),
                 .hidden = call.hidden.as<float>(),
                 .expanded = call.expanded.as<float>(),
                 .factor = call.factor.as<float>()});
}

Tensor scaled(const Context& context, const Call& call, const Tensor& x) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(context.exec, channel_scale_forward, call.image, x.data(), call.factor.data(), nullptr, y.data());
  return y;
}

/// (samples, channels): Σ_p dy·x.
Tensor factor_gradient(const Context& context, const Call& call, const Tensor& x, const Tensor& dy) {
  Tensor dfactor = context.allocate(call.factor.shape(), DType::float32);
  const Scratch scratch = call.image_scratch(context);
  BANTAM_KERNEL(context.exec, channel_scale_grad, call.image, {.x = x.data(), .dy = dy.data()},
                {.dfactor = dfactor.data()}, scratch.get());
  return dfactor;
}

/// Gradients of the weights, to the store; returns what dx of each position gets.
Tensor backward_gate(const Context& context, const Call& call, const Tensor& dfactor, GradientStore& store) {
  const SqueezeExciteTensors& w = call.weights;
  FloatGradient reduce(context, w.reduce, store), reduce_bias(context, w.reduce_bias, store);
  FloatGradient expand(context, w.expand, store), expand_bias(context, w.expand_bias, store);
  const auto target = [](const FloatGradient& to) { return ParameterTarget{to.data, to.accumulate}; };
  Tensor offset = context.allocate(call.mean.shape(), DType::float32);
  {
    const Scratch scratch = context.scratch(kernels::squeeze_excite_workspace_bytes(call.gate));
    BANTAM_KERNEL(context.exec, squeeze_excite_grad, call.gate,
                  {.mean = call.mean.as<float>(),
                   .reduced = call.reduced.as<float>(),
                   .hidden = call.hidden.as<float>(),
                   .expanded = call.expanded.as<float>(),
                   .dfactor = dfactor.as<float>(),
                   .weights = call.data()},
                  {.dx_offset = offset.as<float>(),
                   .reduce = target(reduce),
                   .reduce_bias = target(reduce_bias),
                   .expand = target(expand),
                   .expand_bias = target(expand_bias)},
                  scratch.get());
  }
  reduce.add_to(context, w.reduce, store);
  reduce_bias.add_to(context, w.reduce_bias, store);
  expand.add_to(context, w.expand, store);
  expand_bias.add_to(context, w.expand_bias, store);
  return offset;
}

void backward(const Context& context, const Call& call, SavedTensor& saved, Tensor dy, GradientStore& store) {
  const Tensor dfactor = factor_gradient(context, call, saved.unpack(context), dy);
  const Tensor offset = backward_gate(context, call, dfactor, store);
  if (!wants_gradient(saved.ref())) return;
  Tensor dx = reuse_or_allocate(context, dy);
  BANTAM_KERNEL(context.exec, channel_scale_forward, call.image, dy.data(), call.factor.data(), offset.data(),
                dx.data());
  dy = Tensor();
  store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor squeeze_excite(const Context& context, const Tensor& x, const SqueezeExciteTensors& tensors,
                      ActivationFunction activation, Activation gate) {
  check(context, x, tensors);
  Call call(context, x, tensors);
  call.gate.activation = activation;
  call.gate.gate = {gate};
  forward_gate(context, call, x);
  Tensor y = context.output_unused() ? x.view(x.shape()) : scaled(context, call, x);
  if (!records(context, {&x, &tensors.reduce, &tensors.reduce_bias, &tensors.expand, &tensors.expand_bias})) return y;
  const bool derived = derives(context, 1) && kept_anyway(x);
  const SavedTensor kept = x;
  context.tape->record(context, y, [call, saved = kept](const Context& ctx, Tensor dy, GradientStore& store) mutable {
    backward(ctx, call, saved, std::move(dy), store);
  });
  if (derived)
    attach_recipe(context, y, {&kept}, [call, kept](const Context& ctx) { return scaled(ctx, call, kept.get(ctx)); });
  return y;
}

}  // namespace bantam::ops
