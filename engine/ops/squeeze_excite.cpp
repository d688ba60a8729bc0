// Squeeze-and-excitation: backward sums over dy and x for the factors' gradient, and writes dx = dy·factor +
// dmean/(H·W) in a second pass.
#include "bantam/engine/ops/squeeze_excite.h"

#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"

namespace bantam::ops {

void check_squeeze_excite(const Context& context, const Tensor& x, const SqueezeExciteTensors& w) {
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

SqueezeExciteCall::SqueezeExciteCall(const Context& context, const Tensor& x, const SqueezeExciteTensors& tensors,
                                     ActivationFunction activation, Activation gate_function)
    : image{.samples = x.shape()[0],
            .positions = x.shape()[1] * x.shape()[2],
            .channels = x.shape()[3],
            .dtype = x.dtype()},
      gate{.samples = image.samples,
           .channels = image.channels,
           .units = tensors.reduce.shape()[0],
           .positions = image.positions,
           .dtype = x.dtype(),
           .activation = activation,
           .gate = {gate_function}},
      weights(tensors) {
  const Shape channels{gate.samples, gate.channels}, units{gate.samples, gate.units};
  for (Tensor* tensor : {&mean, &expanded, &factor}) *tensor = context.allocate(channels, DType::float32);
  for (Tensor* tensor : {&reduced, &hidden}) *tensor = context.allocate(units, DType::float32);
}

namespace {

kernels::SqueezeExciteWeights data_of(const SqueezeExciteTensors& w) {
  return {w.reduce.data(), w.reduce_bias.data(), w.expand.data(), w.expand_bias.data()};
}

}  // namespace

void SqueezeExciteCall::forward(const Context& context) const {
  BANTAM_KERNEL(context.exec, squeeze_excite_forward, gate, mean.as<float>(), data_of(weights),
                {.reduced = reduced.as<float>(),
                 .hidden = hidden.as<float>(),
                 .expanded = expanded.as<float>(),
                 .factor = factor.as<float>()});
}

Tensor SqueezeExciteCall::backward(const Context& context, const float* dfactor, GradientStore& store) const {
  const SqueezeExciteTensors& w = weights;
  FloatGradient reduce(context, w.reduce, store), reduce_bias(context, w.reduce_bias, store);
  FloatGradient expand(context, w.expand, store), expand_bias(context, w.expand_bias, store);
  const auto target = [](const FloatGradient& to) { return kernels::ParameterTarget{to.data, to.accumulate}; };
  Tensor offset = context.allocate(mean.shape(), DType::float32);
  {
    const Scratch scratch = context.scratch(kernels::squeeze_excite_workspace_bytes(gate));
    BANTAM_KERNEL(context.exec, squeeze_excite_grad, gate,
                  {.mean = mean.as<float>(),
                   .reduced = reduced.as<float>(),
                   .hidden = hidden.as<float>(),
                   .expanded = expanded.as<float>(),
                   .dfactor = dfactor,
                   .weights = data_of(w)},
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

bool records_squeeze_excite(const Context& context, const Tensor& x, const SqueezeExciteTensors& w) {
  return records(context, {&x, &w.reduce, &w.reduce_bias, &w.expand, &w.expand_bias});
}

namespace {

Scratch image_scratch(const Context& context, const SqueezeExciteCall& call) {
  return context.scratch(kernels::channel_scale_workspace_bytes(call.image, context.device.kind));
}

Tensor scaled(const Context& context, const SqueezeExciteCall& call, const Tensor& x) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  BANTAM_KERNEL(context.exec, channel_scale_forward, call.image, x.data(), call.factor.data(), nullptr, y.data());
  return y;
}

/// (samples, channels): Σ_p dy·x.
Tensor factor_gradient(const Context& context, const SqueezeExciteCall& call, const Tensor& x, const Tensor& dy) {
  Tensor dfactor = context.allocate(call.factor.shape(), DType::float32);
  const Scratch scratch = image_scratch(context, call);
  BANTAM_KERNEL(context.exec, channel_scale_grad, call.image, {.x = x.data(), .dy = dy.data()},
                {.dfactor = dfactor.data()}, scratch.get());
  return dfactor;
}

void backward(const Context& context, const SqueezeExciteCall& call, SavedTensor& saved, Tensor dy,
              GradientStore& store) {
  const Tensor dfactor = factor_gradient(context, call, saved.unpack(context), dy);
  const Tensor offset = call.backward(context, dfactor.as<float>(), store);
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
  check_squeeze_excite(context, x, tensors);
  const SqueezeExciteCall call(context, x, tensors, activation, gate);
  {
    const Scratch scratch = image_scratch(context, call);
    BANTAM_KERNEL(context.exec, position_mean, call.image, x.data(), call.mean.as<float>(), scratch.get());
  }
  call.forward(context);
  Tensor y = context.output_unused() ? x.view(x.shape()) : scaled(context, call, x);
  if (!records_squeeze_excite(context, x, tensors)) return y;
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
