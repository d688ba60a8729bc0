// Dropout: backward keeps one bit an element.
#include "bantam/kernels/contracts/elementwise/dropout.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

Tensor dropout(const Context& context, Tensor x, float rate) {
  if (!(rate >= 0.0f && rate < 1.0f))
    throw ShapeError(fmt::format("dropout: the rate must be in [0, 1), got {}", rate));
  if (context.pass == Pass::evaluate || rate == 0.0f) return x;
  context.check_device("dropout", {&x});
  if (x.shape().rank() < 1) throw ShapeError("dropout: expected (batch, …), got a scalar");
  if (context.random.update == nullptr)
    throw Error("dropout: the context has no random state (set Context::random.update)");
  const std::int64_t samples = x.shape()[0];
  const kernels::DropoutShape shape{
      .samples = samples,
      .sample_elements = samples == 0 ? 0 : x.elements() / samples,
      .rate = rate,
      .key = philox_key(context.random.seed, RandomPurpose::dropout, hash_name(context.path)),
      .first_sample = context.random.first_sample};
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

}  // namespace bantam::ops
