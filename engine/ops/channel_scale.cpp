// A factor a channel (channel_scale, prelu): backward keeps x (or its recipe) where it reads it.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/channel_factor.h"

namespace bantam::ops {
namespace {

/// One call: `op` is its name in errors.
struct Call {
  kernels::ChannelFactorShape shape;
  DType dtype;
};

Call check(const char* op, bool negative_only, const Tensor& x, const Tensor& s) {
  const bool fits = x.shape().rank() >= 1 && (s.shape() == Shape{x.shape()[-1]} || s.shape() == Shape{1});
  if (!fits)
    throw ShapeError(fmt::format("{}: x {} and factors {} do not fit; expected one, or as many as the last axis has",
                                 op, to_string(x.shape()), to_string(s.shape())));
  if (s.dtype() != DType::float32)
    throw DTypeError(fmt::format("{}: the factors are float32, got {}", op, to_string(s.dtype())));
  const std::int64_t channels = x.shape()[-1];
  return {{.rows = channels == 0 ? 0 : x.elements() / channels,
           .channels = channels,
           .negative_only = negative_only,
           .shared = s.shape() != Shape{channels}},
          x.dtype()};
}

void forward(const Context& context, const Call& call, const Tensor& x, const Tensor& s, const Tensor& y) {
  BANTAM_KERNEL(context.exec, channel_factor_forward, call.shape, call.dtype, x.data(), s.as<float>(), y.data());
}

/// `x` is undefined where nothing is computed from it.
void backward(const Context& context, const Call& call, SavedTensor& saved, const ValueRef& x_ref, const Tensor& s,
              const Tensor& dy, GradientStore& store) {
  FloatGradient ds(context, s, store);
  Tensor dx = wants_gradient(x_ref) ? reuse_or_allocate(context, dy) : Tensor();
  if (!saved.defined()) {
    forward(context, call, dy, s, dx);  // the same product
  } else {
    const Tensor x = saved.unpack(context);
    const Scratch scratch =
        context.scratch(kernels::channel_factor_grad_workspace_bytes(call.shape, context.device.kind));
    BANTAM_KERNEL(context.exec, channel_factor_grad, call.shape, call.dtype, {x.data(), s.as<float>(), dy.data()},
                  {dx.defined() ? dx.data() : nullptr, ds.data, ds.accumulate}, scratch.get());
    ds.add_to(context, s, store);
  }
  if (dx.defined()) store.add(context, x_ref, std::move(dx));
}

Tensor scaled(const char* op, bool negative_only, const Context& context, const Tensor& x, const Tensor& s) {
  context.check_device(op, {&x, &s});
  const Call call = check(op, negative_only, x, s);
  Tensor y = context.allocate(x.shape(), x.dtype());
  forward(context, call, x, s, y);
  if (!records(context, {&x, &s})) return y;
  const bool reads_x = negative_only || wants_gradient(s);
  const SavedTensor saved = reads_x ? SavedTensor(x) : SavedTensor();
  context.tape->record(
      context, y, [=, kept = saved, x_ref = ValueRef(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        backward(ctx, call, kept, x_ref, s, dy, store);
      });
  if (reads_x)
    attach_recipe(context, y, {&saved}, [=](const Context& ctx) {
      const Tensor input = saved.get(ctx);
      Tensor rebuilt = ctx.allocate(input.shape(), input.dtype());
      forward(ctx, call, input, s, rebuilt);
      return rebuilt;
    });
  return y;
}

}  // namespace

Tensor channel_scale(const Context& context, const Tensor& x, const Tensor& scale) {
  return scaled("channel_scale", false, context, x, scale);
}

Tensor prelu(const Context& context, const Tensor& x, const Tensor& slope) {
  return scaled("prelu", true, context, x, slope);
}

}  // namespace bantam::ops
