// Dropout of elements, channels and samples: backward keeps one bit a random number.
#include "bantam/kernels/elementwise/dropout.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

namespace {

/// The part of a sample that is kept or dropped as a whole.
enum class Unit : std::uint8_t { element, channel, sample };

kernels::DropoutShape shape_of(const char* op, const Context& context, const Tensor& x, Unit unit, float rate) {
  const int axes = unit == Unit::channel ? 2 : 1;
  if (x.shape().rank() < axes)
    throw ShapeError(
        fmt::format("{}: expected (batch, …{}), got {}", op, axes == 2 ? ", channels" : "", to_string(x.shape())));
  if (context.random.update == nullptr)
    throw Error(fmt::format("{}: the context has no random state (set Context::random.update)", op));
  const std::int64_t samples = x.shape()[0];
  return {.samples = samples,
          .sample_elements = samples == 0 ? 0 : x.elements() / samples,
          .rate = rate,
          .key = philox_key(context.random.seed, RandomPurpose::dropout, hash_name(context.path)),
          .first_sample = context.random.first_sample,
          .draws = unit == Unit::element   ? 0
                   : unit == Unit::channel ? x.shape()[-1]
                                           : 1};
}

Tensor drop(const char* op, const Context& context, Tensor x, Unit unit, float rate) {
  if (!(rate >= 0.0f && rate < 1.0f)) throw ShapeError(fmt::format("{}: the rate must be in [0, 1), got {}", op, rate));
  if (context.pass == Pass::evaluate || rate == 0.0f) return x;
  context.check_device(op, {&x});
  const kernels::DropoutShape shape = shape_of(op, context, x, unit, rate);
  const ValueRef x_ref = x;
  const bool recorded = records(context, {&x});
  const bool derived = recorded && derives(context, 1) && kept_anyway(x);
  const SavedTensor x_saved = derived ? SavedTensor(x) : SavedTensor();
  Tensor y = reuse_or_allocate(context, x);
  const Tensor mask = context.allocate({static_cast<std::int64_t>(kernels::dropout_mask_bytes(shape))}, DType::uint8);
  BANTAM_KERNEL(context.exec, dropout_forward, shape, x.dtype(), context.random.update, x.data(), y.data(),
                mask.as<std::uint32_t>());
  if (!recorded) return y;
  context.tape->record(context, y, [=](const Context& ctx, Tensor dy, GradientStore& store) {
    Tensor dx = reuse_or_allocate(ctx, dy);
    BANTAM_KERNEL(ctx.exec, dropout_grad, shape, dy.dtype(), mask.as<std::uint32_t>(), dy.data(), dx.data());
    store.add(ctx, x_ref, std::move(dx));
  });
  if (derived)  // y from x and the mask is the same product as dx from dy
    attach_recipe(context, y, {&x_saved}, [=](const Context& ctx) {
      const Tensor input = x_saved.get(ctx), again = ctx.allocate(input.shape(), input.dtype());
      BANTAM_KERNEL(ctx.exec, dropout_grad, shape, input.dtype(), mask.as<std::uint32_t>(), input.data(), again.data());
      return again;
    });
  return y;
}

}  // namespace

Tensor dropout(const Context& context, Tensor x, float rate) {
  return drop("dropout", context, std::move(x), Unit::element, rate);
}

Tensor spatial_dropout(const Context& context, Tensor x, float rate) {
  return drop("spatial_dropout", context, std::move(x), Unit::channel, rate);
}

Tensor drop_path(const Context& context, Tensor x, float rate) {
  return drop("drop_path", context, std::move(x), Unit::sample, rate);
}

}  // namespace bantam::ops
