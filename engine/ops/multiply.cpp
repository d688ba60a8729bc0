// Multiply: da = dy·b and db = dy·a, summed over positions where b is a factor a channel and sample.
#include "bantam/kernels/join/multiply.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/join/channel_scale.h"

namespace bantam::ops {
namespace {

/// Whether `factors` has a value for each sample and channel of x (batch, …, C): it is (batch, C) or (batch, 1, …, C).
bool scales_channels(const Shape& x, const Shape& factors) {
  if (x.rank() < 2 || factors.rank() < 2 || factors[0] != x[0] || factors[-1] != x[-1]) return false;
  if (factors.rank() != 2 && factors.rank() != x.rank()) return false;
  return std::ranges::all_of(factors.extents().subspan(1, static_cast<std::size_t>(factors.rank()) - 2),
                             [](std::int64_t extent) { return extent == 1; });
}

/// Operands that backward reads, kept where a gradient is computed from them.
struct SavedOperands {
  ValueRef a, b;
  SavedTensor a_value, b_value;  // undefined where the other one's gradient is not wanted

  SavedOperands(const Tensor& left, const Tensor& right) : a(left), b(right) {
    if (wants_gradient(b)) a_value = SavedTensor(left);
    if (wants_gradient(a)) b_value = SavedTensor(right);
  }
};

const void* data_of(const Tensor& tensor) { return tensor.defined() ? tensor.data() : nullptr; }

Tensor unpacked(const Context& context, SavedTensor& saved) {
  return saved.defined() ? saved.unpack(context) : Tensor();
}

Tensor multiply_alike(const Context& context, const Tensor& a, const Tensor& b) {
  Tensor y = context.allocate(a.shape(), a.dtype());
  if (!context.output_unused())
    BANTAM_KERNEL(context.exec, multiply, y.elements(), y.dtype(), a.data(), b.data(), y.data());
  if (!records(context, {&a, &b})) return y;
  const bool derived = derives(context, 2) && kept_anyway(a) && kept_anyway(b);
  context.tape->record(
      context, y, [saved = SavedOperands(a, b)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        const Tensor a = unpacked(ctx, saved.a_value), b = unpacked(ctx, saved.b_value);
        Tensor db = a.defined() ? ctx.allocate(dy.shape(), dy.dtype()) : Tensor();
        Tensor da = b.defined() ? reuse_or_allocate(ctx, dy) : Tensor();
        BANTAM_KERNEL(ctx.exec, multiply_grad, dy.elements(), dy.dtype(),
                      {.a = data_of(a), .b = data_of(b), .dy = dy.data()},
                      {.da = da.defined() ? da.data() : nullptr, .db = db.defined() ? db.data() : nullptr});
        dy = Tensor();
        if (da.defined()) store.add(ctx, saved.a, std::move(da));
        if (db.defined()) store.add(ctx, saved.b, std::move(db));
      });
  if (!derived) return y;
  const SavedTensor left = a, right = b;
  attach_recipe(context, y, {&left, &right}, [=](const Context& ctx) {
    const Tensor from = left.get(ctx), by = right.get(ctx);
    Tensor again = ctx.allocate(from.shape(), from.dtype());
    BANTAM_KERNEL(ctx.exec, multiply, again.elements(), again.dtype(), from.data(), by.data(), again.data());
    return again;
  });
  return y;
}

kernels::ChannelScaleShape scale_shape(const Tensor& x) {
  const std::int64_t samples = x.shape()[0], channels = x.shape()[-1];
  return {.samples = samples,
          .positions = samples * channels == 0 ? 0 : x.elements() / (samples * channels),
          .channels = channels,
          .dtype = x.dtype(),
          .factor_dtype = x.dtype()};
}

Tensor multiply_channels(const Context& context, const Tensor& x, const Tensor& factors) {
  const kernels::ChannelScaleShape shape = scale_shape(x);
  Tensor y = context.allocate(x.shape(), x.dtype());
  if (!context.output_unused())
    BANTAM_KERNEL(context.exec, channel_scale_forward, shape, x.data(), factors.data(), nullptr, y.data());
  if (!records(context, {&x, &factors})) return y;
  const bool derived = derives(context, 1) && kept_anyway(x);
  context.tape->record(
      context, y,
      [shape, saved = SavedOperands(x, factors), factors_shape = factors.shape()](const Context& ctx, Tensor dy,
                                                                                  GradientStore& store) mutable {
        const Tensor x = unpacked(ctx, saved.a_value), by = unpacked(ctx, saved.b_value);
        Tensor dfactors = x.defined() ? ctx.allocate(factors_shape, dy.dtype()) : Tensor();
        Tensor dx = by.defined() ? reuse_or_allocate(ctx, dy) : Tensor();
        const Scratch scratch =
            ctx.scratch(x.defined() ? kernels::channel_scale_workspace_bytes(shape, ctx.device.kind) : std::size_t{0});
        BANTAM_KERNEL(
            ctx.exec, channel_scale_grad, shape, {.x = data_of(x), .factor = data_of(by), .dy = dy.data()},
            {.dx = dx.defined() ? dx.data() : nullptr, .dfactor = dfactors.defined() ? dfactors.data() : nullptr},
            scratch.get());
        dy = Tensor();
        if (dx.defined()) store.add(ctx, saved.a, std::move(dx));
        if (dfactors.defined()) store.add(ctx, saved.b, std::move(dfactors));
      });
  if (!derived) return y;
  const SavedTensor from = x, by = factors;  // the factors are small beside x
  attach_recipe(context, y, {&from}, [=](const Context& ctx) {
    const Tensor input = from.get(ctx), factor = by.get(ctx);
    Tensor again = ctx.allocate(input.shape(), input.dtype());
    BANTAM_KERNEL(ctx.exec, channel_scale_forward, shape, input.data(), factor.data(), nullptr, again.data());
    return again;
  });
  return y;
}

}  // namespace

Tensor multiply(const Context& context, const Tensor& a, const Tensor& b) {
  context.check_device("multiply", {&a, &b});
  if (a.dtype() != b.dtype())
    throw DTypeError(fmt::format("multiply: {} and {} differ", to_string(a.dtype()), to_string(b.dtype())));
  if (a.shape() == b.shape()) return multiply_alike(context, a, b);
  if (scales_channels(a.shape(), b.shape())) return multiply_channels(context, a, b);
  if (scales_channels(b.shape(), a.shape())) return multiply_channels(context, b, a);
  throw ShapeError(
      fmt::format("multiply: {} and {} do not fit; expected operands of one shape, or (batch, …, C) and (batch, C)",
                  to_string(a.shape()), to_string(b.shape())));
}

}  // namespace bantam::ops
